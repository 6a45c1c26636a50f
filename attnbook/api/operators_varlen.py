"""The operator of attention over packed sequences; see `attnbook.api.operators`.

Where each sequence ends is in tensors here, so that lengths may change without compiling again. Their values are
checked when the operator runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.api import autocast, kernels
from attnbook.api.operators import all_tensors, fake_gradients, lse_dtype
from attnbook.shapes import whole_numbers
from attnbook.tiled.varlen import varlen_backward, varlen_forward


@torch.library.custom_op("attnbook::attention_varlen", mutates_args=())
def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    is_causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float | None,
    impl: str = "auto",
) -> tuple[Tensor, Tensor]:
    """`attnbook.attention_varlen` -> out (t_q, n_heads, d_v), lse (t_q, n_heads).

    "auto" is the Triton kernels on a GPU, if they can, and else the tiles.
    """
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    if kernels.taken(impl, q, q.shape[2], v.shape[2]):
        return kernels.varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, mask, alibi_slopes, sinks, **options)
    cu_q, cu_k = whole_numbers("cu_seqlens_q", cu_seqlens_q), whole_numbers("cu_seqlens_k", cu_seqlens_k)
    return varlen_forward(q, k, v, cu_q, cu_k, mask, alibi_slopes, sinks, **options)


@attention_varlen.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    kernels.require(options[9] if len(options) > 9 else "auto", q)
    t_q, n_heads = q.shape[:2]
    return q.new_empty((t_q, n_heads, v.shape[2])), q.new_empty((t_q, n_heads), dtype=lse_dtype(q))


@torch.library.custom_op("attnbook::attention_varlen_backward", mutates_args=())
def attention_varlen_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
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
    """The gradients of q, k, v, mask, slopes and sinks; an empty tensor where none is needed."""
    options: dict[str, Any] = {
        "is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale,
        "needs_mask": needs_mask, "needs_alibi": needs_alibi, "needs_sinks": needs_sinks,
    }  # fmt: skip
    before, others = (grad_out, grad_lse, q, k, v, out, lse), (mask, alibi_slopes, sinks)
    if kernels.taken(impl, q, q.shape[2], v.shape[2]):
        return all_tensors(kernels.varlen_backward()(*before, cu_seqlens_q, cu_seqlens_k, *others, **options), q)
    cu_q, cu_k = whole_numbers("cu_seqlens_q", cu_seqlens_q), whole_numbers("cu_seqlens_k", cu_seqlens_k)
    return all_tensors(varlen_backward(*before, cu_q, cu_k, *others, **options), q)


@attention_varlen_backward.register_fake
def _(
    grad_out: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *options: Any
) -> tuple[Tensor, ...]:
    return fake_gradients(q, k, v, options[2:5], options[9:12])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.options = inputs[8:]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, cu_q, cu_k, *others, out, lse = ctx.saved_tensors
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    needs = (*ctx.needs_input_grad[:3], *ctx.needs_input_grad[5:8])
    *how, impl = ctx.options
    grads = attention_varlen_backward(
        grad_out, grad_lse, q, k, v, out, lse, cu_q, cu_k, *others, *how, *needs[3:], impl
    )
    d_q, d_k, d_v, *rest = (grad if needed else None for grad, needed in zip(grads, needs, strict=True))
    return d_q, d_k, d_v, None, None, *rest, *(None for _ in ctx.options)


attention_varlen.register_autograd(_differentiate, setup_context=_keep)
autocast.register("attention_varlen", casts=True)
autocast.register("attention_varlen_backward", casts=False)
