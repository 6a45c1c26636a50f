"""Attention over packed sequences of several lengths: each with its own keys, nothing spent on filling.

A dense mask of all sequences together is block-diagonal, and almost all that is calculated under it is thrown away;
here only the blocks are. Layout and `cu_seqlens` are those of flash-attention (Dao 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbook.shapes import AttentionSizes, check_cu_seqlens, check_options, check_varlen, whole_numbers
from attnbook.tiled.backward import attention_backward
from attnbook.tiled.forward import attention_forward
from attnbook.tiled.lanes import tile_of
from attnbook.tiled.once import Once
from attnbook.tiled.packed import Batch, batches
from attnbook.tiled.prepare import check, working_dtype
from attnbook.tiled.uncast import uncast

Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """`attention` for each of several sequences that lie one after another along the first axis.

    q (t_q, n_heads, d), k (t_kv, n_kv_heads, d), v (t_kv, n_kv_heads, d_v) -> out (t_q, n_heads, d_v), in the dtype of
    q; with `return_lse` also lse (t_q, n_heads).

    Sequence n has the queries from cu_seqlens_q[n] up to cu_seqlens_q[n + 1], and its keys likewise; both hold one
    number more than there are sequences, as lists of whole numbers or arrays of an integer dtype. A sequence may be
    empty. Rows beyond the last sequence belong to none: output 0, lse −inf, gradients 0.

    The options are those of `attnbook.tiled.attention`, with positions counted inside each sequence: `is_causal`
    aligns the ends of each. `mask` broadcasts to (n_heads, t_q, t_kv) of the packed axes, and only its blocks on the
    diagonal are read. `alibi_slopes` is (n_heads,) or (n_sequences, n_heads).

    Differentiable once. Raises ShapeError for `cu_seqlens` that don't start at 0, fall, or end outside; otherwise what
    `attnbook.tiled.attention` raises. Memory grows with the packed length.
    """
    cu_q, cu_k = whole_numbers("cu_seqlens_q", cu_seqlens_q), whole_numbers("cu_seqlens_k", cu_seqlens_k)
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    tensors = (q, k, v, mask, alibi_slopes, sinks)
    with uncast(q):
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in tensors):
            out, lse = _Varlen.apply(*tensors, cu_q, cu_k, options)  # type: ignore[no-untyped-call]
        else:
            out, lse = varlen_forward(q, k, v, cu_q, cu_k, mask, alibi_slopes, sinks, **options)
    return (out, lse) if return_lse else out


def varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Sequence[int],
    cu_k: Sequence[int],
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """`attention_varlen` without a gradient -> out (t_q, n_heads, d_v) and lse (t_q, n_heads).

    Shapes, options and errors are those of `attnbook.tiled.attention_varlen`.
    """
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    _check(q, k, v, cu_q, cu_k, mask, alibi_slopes, sinks, options)
    out = q.new_zeros((*q.shape[:2], v.shape[2]))
    lse = q.new_full(q.shape[:2], -torch.inf, dtype=working_dtype(q))
    for batch in batches(cu_q, cu_k, alone=mask is not None):
        if batch.t_q == 0:
            continue
        of_mask = None if mask is None else _block(mask, batch)
        of_heads = (of_mask, batch.slopes(alibi_slopes), sinks)
        part, part_lse = attention_forward(batch.queries(q), batch.keys(k), batch.keys(v), *of_heads, **options)
        batch.put_queries(out, part)
        batch.put_queries(lse, part_lse)
    return out, lse


def varlen_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_q: Sequence[int],
    cu_k: Sequence[int],
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    needs_mask: bool = False,
    needs_alibi: bool = False,
    needs_sinks: bool = False,
) -> Gradients:
    """The gradients of q, k and v, and of the mask, the slopes and the sinks where asked for (else None).

    `out` and `lse` are what `varlen_forward` gave for the same inputs; `grad_out` and `grad_lse` have their shapes.
    Errors are those of `varlen_forward`; what it gave is not checked.
    """
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    _check(q, k, v, cu_q, cu_k, mask, alibi_slopes, sinks, options)
    options |= {"needs_mask": needs_mask, "needs_alibi": needs_alibi, "needs_sinks": needs_sinks}
    whole = _zeros(q), _zeros(k), _zeros(v)
    d_mask = _zeros(mask) if needs_mask and mask is not None else None
    # What sequences share is summed over them in the working dtype, and rounded once.
    slopes, shared_sinks = (None if x is None else x.to(working_dtype(q)) for x in (alibi_slopes, sinks))
    d_slopes = _zeros(slopes) if needs_alibi and slopes is not None else None
    d_sinks = _zeros(shared_sinks) if needs_sinks and shared_sinks is not None else None
    for batch in batches(cu_q, cu_k, alone=mask is not None):
        if batch.t_q == 0:
            continue
        inputs = (batch.queries(q), batch.keys(k), batch.keys(v), batch.queries(out), batch.queries(lse))
        of_heads = (None if mask is None else _block(mask, batch), batch.slopes(slopes), shared_sinks)
        of_lse = None if grad_lse is None else batch.queries(grad_lse)
        grads = attention_backward(batch.queries(grad_out), of_lse, *inputs, *of_heads, **options)
        batch.put_queries(whole[0], grads[0])
        batch.put_keys(whole[1], grads[1])
        batch.put_keys(whole[2], grads[2])
        of_mask, of_slopes, of_sinks = grads[3:]
        if d_mask is not None and of_mask is not None:
            _block(d_mask, batch).add_(of_mask)
        if d_slopes is not None and of_slopes is not None:
            if d_slopes.ndim == 2:
                d_slopes[batch.sequences] = of_slopes
            else:
                d_slopes.add_(of_slopes)
        if d_sinks is not None and of_sinks is not None:
            d_sinks.add_(of_sinks)
    return (
        *whole,
        d_mask,
        None if d_slopes is None or alibi_slopes is None else d_slopes.to(alibi_slopes.dtype),
        None if d_sinks is None or sinks is None else d_sinks.to(sinks.dtype),
    )


def _zeros(x: Tensor) -> Tensor:
    return torch.zeros_like(x, memory_format=torch.contiguous_format)


def _block(mask: Tensor, batch: Batch) -> Tensor:
    """The part of a packed mask (h, t_q, t_kv), or what broadcasts to it, of a batch of one sequence; a view."""
    (q_start, q_stop), (k_start, k_stop) = batch.block()
    mask = mask[(None,) * (4 - mask.ndim)]
    return tile_of(tile_of(mask, q_start, q_stop, 2), k_start, k_stop, 3)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Sequence[int],
    cu_k: Sequence[int],
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    options: dict[str, Any],
) -> None:
    """Raises the error that says what is wrong with the call as a whole, also where no sequence holds anything."""
    sizes = check_varlen(q, k, v)
    check_cu_seqlens(cu_q, cu_k, sizes)
    n = len(cu_q) - 1
    packed = AttentionSizes(n, sizes.n_heads, sizes.n_kv_heads, sizes.t_q, sizes.t_kv, sizes.head_dim, sizes.d_v)
    check_options(packed, **options, alibi_slopes=alibi_slopes, sinks=sinks)
    # Kinds of number, devices and the mask are those of one long sequence; one sequence's slopes stand for all.
    slopes = alibi_slopes
    if isinstance(alibi_slopes, Tensor) and alibi_slopes.ndim == 2:
        slopes = alibi_slopes[0] if n else None
    one, keys, values = (x.transpose(0, 1)[None] if isinstance(x, Tensor) else x for x in (q, k, v))
    check(one, keys, values, mask, slopes, sinks, **options)


class _Varlen(torch.autograd.Function):
    """Forward keeps its inputs, out and lse; backward calculates the weights again from them."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        q, k, v, *tensors, cu_q, cu_k, options = inputs
        out, lse = varlen_forward(q, k, v, cu_q, cu_k, *tensors, **options)
        ctx.save_for_backward(q, k, v, *tensors, out, lse)
        ctx.rest = cu_q, cu_k, options
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, out, lse = ctx.saved_tensors
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        needs = dict(zip(("needs_mask", "needs_alibi", "needs_sinks"), ctx.needs_input_grad[3:6], strict=True))
        calculate = partial(_backward, rest=ctx.rest, needs=needs)
        grads = Once.apply("attention_varlen", calculate, grad_out, grad_lse, *tensors, out, lse)  # type: ignore[no-untyped-call]
        return *grads, None, None, None


def _backward(
    grad_out: Tensor, grad_lse: Tensor | None, *inputs: Tensor, rest: Any, needs: dict[str, bool]
) -> Gradients:
    q, k, v, mask, slopes, sinks, out, lse = inputs
    cu_q, cu_k, options = rest
    return varlen_backward(grad_out, grad_lse, q, k, v, out, lse, cu_q, cu_k, mask, slopes, sinks, **options, **needs)
