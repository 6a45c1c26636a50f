"""The operators of `torch.library`: attention as one node that torch.compile, torch.export and autocast know.

Each has a kernel, a fake kernel that only says shapes (they may be symbols), and a backward operator. The door uses
them where a call is traced; elsewhere it calls the implementation itself, which costs less. A kernel of another device
registers behind the same name (`attention.register_kernel`) and is told by `impl` what was asked for; the Triton
kernels need no such place, for in the interpreter they run on the CPU. There is no rule for vmap: a batch axis is what
b is for.

Checks of values, such as rising `cu_seqlens`, happen inside the kernels: while tracing there are no values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook import tiled
from attnbook.api import autocast, flash, kernels
from attnbook.api.choose import decodes_faster
from attnbook.shapes import check_attention
from attnbook.tiled.decode import decode_forward, takes_decode


@torch.library.custom_op("attnbook::attention", mutates_args=())
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
    impl: str = "auto",
    wants_lse: bool = True,
) -> tuple[Tensor, Tensor]:
    """`attnbook.attention` -> out (b, n_heads, t_q, d_v), lse (b, n_heads, t_q).

    Here are values, so with "auto" torch's flash kernel runs where it is right, as behind the door, and on a GPU the
    Triton kernels if they can; "tiled" is tiles, "triton" the kernels or an error.
    That kernel's lse of half precision is good enough for its own backward only: `wants_lse` asks for a better one.
    """
    sizes, how = check_attention(q, k, v), flash.How(mask, alibi_slopes, sinks, is_causal, window, softcap, scale)
    rounds = wants_lse and q.dtype in flash.HALF
    if impl == "auto" and not rounds and flash.suits(q, k, v, how) and not decodes_faster(sizes, q.dtype):
        found = flash.forward(q, k, v, how)
        if found is not None:
            return flash.laid_out(found[0]), flash.nothing_seen(found[1], how)
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    if kernels.taken(impl, q, sizes.head_dim, sizes.d_v):
        return kernels.forward(sizes, q, k, v, mask, alibi_slopes, sinks, **options)
    forward = decode_forward if takes_decode(sizes) else tiled.attention_forward
    out, lse = forward(q, k, v, mask, alibi_slopes, sinks, **options)
    return flash.laid_out(out) if impl == "auto" and flash.has_options(q, v, how) else out, lse


@attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    b, n_heads, t_q = q.shape[:3]
    lse = q.new_empty((b, n_heads, t_q), dtype=lse_dtype(q))
    impl = options[7] if len(options) > 7 else "auto"
    kernels.require(impl, q)
    if impl == "auto" and flash.has_options(q, v, flash.How(*options[:7])):
        return q.new_empty((b, t_q, n_heads, v.shape[3])).transpose(1, 2), lse
    return q.new_empty((b, n_heads, t_q, v.shape[3])), lse


@torch.library.custom_op("attnbook::attention_backward", mutates_args=())
def attention_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
    needs_mask: bool,
    needs_alibi: bool,
    needs_sinks: bool,
    impl: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, mask, slopes and sinks; an empty tensor where none is needed.

    They come from out and lse, so each pass chooses by itself: torch's flash kernel has no gradient of the lse.
    """
    how = flash.How(mask, alibi_slopes, sinks, is_causal, window, softcap, scale)
    if impl == "auto" and grad_lse is None and not needs_mask and flash.suits(q, k, v, how):
        found = flash.backward(grad_out, q, k, v, out, lse, how)
        if found is not None:
            d_q, d_k, d_v = (x.contiguous() for x in found)
            return all_tensors((d_q, d_k, d_v, None, None, None), q)
    run = tiled.attention_backward
    if kernels.taken(impl, q, q.shape[3], v.shape[3]):
        run = kernels.backward()
    grads = run(
        grad_out, grad_lse, q, k, v, out, lse, mask, alibi_slopes, sinks,
        is_causal=is_causal, window=window, softcap=softcap, scale=scale,
        needs_mask=needs_mask, needs_alibi=needs_alibi, needs_sinks=needs_sinks,
    )  # fmt: skip
    return all_tensors(grads, q)


@attention_backward.register_fake
def _(
    grad_out: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *options: Any
) -> tuple[Tensor, ...]:
    return fake_gradients(q, k, v, options[:3], options[7:10])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:6], *output)
    ctx.options = inputs[6:]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, mask, alibi_slopes, sinks, out, lse = ctx.saved_tensors
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    needs = ctx.needs_input_grad[:6]
    *how, impl, _ = ctx.options
    grads = attention_backward(grad_out, grad_lse, q, k, v, out, lse, mask, alibi_slopes, sinks, *how, *needs[3:], impl)
    return *(grad if needed else None for grad, needed in zip(grads, needs, strict=True)), *(None for _ in ctx.options)


attention.register_autograd(_differentiate, setup_context=_keep)


autocast.register("attention", casts=True)
autocast.register("attention_backward", casts=False)


def all_tensors(grads: kernels.Gradients, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """An operator returns tensors only: an empty one for each None."""
    d_q, d_k, d_v, *others = grads
    d_mask, d_slopes, d_sinks = (like.new_empty(0) if x is None else x for x in others)
    return d_q, d_k, d_v, d_mask, d_slopes, d_sinks


def fake_gradients(
    q: Tensor, k: Tensor, v: Tensor, others: tuple[Tensor | None, ...], needs: tuple[bool, ...]
) -> tuple[Tensor, ...]:
    """Shapes and dtypes of the gradients, as `all_tensors` leaves them."""
    rest = zip(others, needs, strict=True)
    empty = (x.new_empty(x.shape) if needed and x is not None else q.new_empty(0) for x, needed in rest)
    return *(x.new_empty(x.shape) for x in (q, k, v)), *empty


def lse_dtype(q: Tensor) -> torch.dtype:
    """float64 for float64, float32 for shorter floats."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32
