"""The public function: attention in tiles, differentiable."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbook.tiled.backward import backward_from_saved
from attnbook.tiled.forward import attention_forward
from attnbook.tiled.once import Once
from attnbook.tiled.uncast import uncast


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    tile_q: int | None = None,
    tile_k: int | None = None,
) -> Any:
    """softmax(scale · q kᵀ + mask) v, one tile of scores at a time: memory grows with t, not with t².

    q (b, n_heads, t_q, d), k (b, n_kv_heads, t_kv, d), v (b, n_kv_heads, t_kv, d_v) -> out (b, n_heads, t_q, d_v), in
    the dtype of q; with `return_lse` also the natural log-sum-exp of each query's scores, lse (b, n_heads, t_q).

    In the order in which they act:

    - `scale` multiplies the scores; 1/√d where it is not given.
    - `softcap` c makes a score s c · tanh(s / c).
    - `alibi_slopes` (h,) or (b, h): slope · |i + t_kv − t_q − j| is taken from the score of query i and key j.
    - `mask` broadcasts to (b, n_heads, t_q, t_kv): booleans, True = may attend, or floats to be added. −inf in it, or
      the lowest finite number of its own dtype or of q's, hides the key.
    - `is_causal`: query i sees key j when j ≤ i + t_kv − t_q; with `window` w (a number of keys, itself included) only
      the last w of those.
    - `sinks` (h,) is one more score in each row's sum, of a key without a value.
    - `tile_q` and `tile_k`, the queries and keys of a tile, change rounding and speed, nothing else.

    A query that may see no key gets output 0 and lse −inf (the sink, where there is one), gradients 0. Query heads
    share keys and values in contiguous groups, which become more rows of one product: k and v are never repeated.
    Calculated in float32, or float64 for float64 input; lse stays in that. A NaN or inf in q stays in its row; in k or
    v it reaches only queries that may see its key.

    Differentiable once, in q, k, v, a mask of floats, alibi_slopes and sinks. Raises ShapeError, DTypeError, ValueError
    (an option out of range, two devices) and TypeError (no tensor). Dao et al. 2022; Dao 2023.
    """
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    options |= {"tile_q": tile_q, "tile_k": tile_k}
    tensors = (q, k, v, mask, alibi_slopes, sinks)
    with uncast(q):
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in tensors):
            out, lse = _Attention.apply(*tensors, options)  # type: ignore[no-untyped-call]
        else:
            out, lse = attention_forward(*tensors, **options)
    return (out, lse) if return_lse else out


class _Attention(torch.autograd.Function):
    """Forward keeps its inputs, out and lse; backward calculates the weights again from them."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        *tensors, options = inputs
        return attention_forward(*tensors, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.options = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, out, lse = ctx.saved_tensors
        if grad_out is None:
            grad_out = torch.zeros((), dtype=out.dtype, device=out.device).expand(out.shape)
        needs = dict(zip(("needs_mask", "needs_alibi", "needs_sinks"), ctx.needs_input_grad[3:6], strict=True))
        calculate = partial(backward_from_saved, **ctx.options, **needs)
        grads = Once.apply("attention", calculate, grad_out, grad_lse, *tensors, out, lse)  # type: ignore[no-untyped-call]
        return *grads, None
