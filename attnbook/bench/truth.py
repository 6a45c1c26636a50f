"""Is a kernel right? Attention and experts in the dtype of their inputs, all at once, and the limit that follows.

The same formula in float64 is the truth, and in the kernel's own dtype it is what one would write at first. A kernel
may be at most twice as far from the truth as that, plus the one rounding of storing its result: a limit that comes from
the data and does not loosen with length. `wrong` are results that such a check must refuse, so that it can be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from attnbook.bench.case import Disagree

Options = Mapping[str, Any]


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Out (b, n_heads, t_q, d_v) and lse (b, n_heads, t_q), every step in the dtype of q; differentiable.

    Options as in `attnbook.attention`; the mask is of booleans, or of floats to be added.
    """
    n_heads, t_q, t_kv = q.shape[1], q.shape[2], k.shape[2]
    k, v = (x.repeat_interleave(n_heads // x.shape[1], dim=1) for x in (k, v))
    score = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)  # (b, n_heads, t_q, t_kv)
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    behind = torch.arange(t_q, device=q.device)[:, None] + (t_kv - t_q) - torch.arange(t_kv, device=q.device)
    if alibi_slopes is not None:
        score = score - alibi_slopes.to(q.dtype).reshape(-1, n_heads, 1, 1) * behind.abs()
    seen = torch.ones(t_q, t_kv, dtype=torch.bool, device=q.device)
    if is_causal:
        seen = behind >= 0 if window is None else (behind >= 0) & (behind < window)
    if mask is not None and mask.dtype == torch.bool:
        seen = seen & mask
    elif mask is not None:
        score = score + mask.to(q.dtype)
    score = score.masked_fill(~seen, -math.inf)
    if sinks is not None:
        column = sinks.to(q.dtype).reshape(1, n_heads, 1, 1).expand(*score.shape[:3], 1)
        score = torch.cat([score, column], -1)
    nothing = (score == -math.inf).all(-1, keepdim=True)
    weight = torch.softmax(score.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)[..., :t_kv]
    lse = torch.logsumexp(score.masked_fill(nothing, 0.0), -1).masked_fill(nothing[..., 0], -math.inf)
    return weight @ v, lse


def experts(x: Tensor, chosen: Tensor, weights: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Σ over the slots of weight · (silu(x gate) · x up) down of the slot's expert, (t, d); every step in x's dtype.

    x (t, d), chosen and weights (t, k) with −1 for a dropped assignment, gate and up (e, d, f), down (e, f, d).
    """
    y = torch.zeros_like(x)
    for e in range(gate.shape[0]):
        share = torch.where(chosen == e, weights.to(x.dtype), 0).sum(-1)
        rows = (chosen == e).any(-1).nonzero()[:, 0]
        of_rows = (silu(x[rows] @ gate[e]) * (x[rows] @ up[e])) @ down[e]
        y = y.index_add(0, rows, of_rows * share[rows, None])
    return y


def gradients(
    run: Callable[..., Any], inputs: Sequence[Tensor], grad: Tensor | tuple[Tensor, ...], dtype: torch.dtype
) -> list[Tensor]:
    """The gradients of every floating input of `run`, all steps in `dtype`."""
    leaves = [x.detach().to(dtype).requires_grad_() if x.is_floating_point() else x for x in inputs]
    outputs = run(*leaves)
    wanted = [x for x in leaves if x.requires_grad]
    if isinstance(grad, tuple):
        return list(torch.autograd.grad(outputs, wanted, [g.to(x.dtype) for g, x in zip(grad, outputs, strict=True)]))
    return list(torch.autograd.grad(outputs, wanted, grad.to(outputs.dtype)))


def allowed(right: Tensor, plain: Tensor, dtype: torch.dtype) -> float:
    """How far a result in `dtype` may be from the truth, at its worst place."""
    return 2 * largest(plain.double() - right) + torch.finfo(dtype).eps * largest(right)


def excess(got: Tensor, right: Tensor, plain: Tensor, dtype: torch.dtype | None = None) -> float:
    """The error of a result as a multiple of what is allowed: right up to 1; infinite where it is not finite.

    `dtype`: that of the inputs, where a result is kept in more. Raises Disagree for another shape.
    """
    if got.shape != right.shape:
        raise Disagree(f"shape {tuple(got.shape)}, expected {tuple(right.shape)}")
    empty = right.isinf()  # the lse of a row that sees nothing
    if not torch.equal(got.double()[empty], right[empty]) or not got[~empty].isfinite().all():
        return math.inf
    right, plain, got = right[~empty], plain[~empty], got[~empty]
    limit = allowed(right, plain, dtype or got.dtype)
    error = largest(got.double() - right)
    return error / limit if limit else (0.0 if error == 0 else math.inf)


def largest(x: Tensor) -> float:
    """The largest absolute value; 0 of nothing."""
    return float(x.abs().max()) if x.numel() else 0.0


def wrong(q: Tensor, k: Tensor, v: Tensor, right: Tensor, options: Options) -> Iterator[tuple[str, Tensor]]:
    """Results by name, in float64, that look plausible and that a check of `right` must refuse."""

    def other(k: Tensor = k, v: Tensor = v, **changed: Any) -> Tensor:
        return dense(q, k, v, **{**options, **changed})[0]

    yield "zeros", torch.zeros_like(right)
    yield "half as large", right / 2
    mean = v.mean(2, keepdim=True).repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    yield "mean of v", mean.expand_as(right)
    yield "one NaN", torch.where(torch.arange(right.numel(), device=q.device).view_as(right) == 0, math.nan, right)
    yield "scale 1/d", other(scale=1 / q.shape[-1])
    if options.get("is_causal"):
        yield "not causal", other(is_causal=False, window=None)
        if q.shape[2] > 1:
            late = torch.cat([torch.zeros_like(k[:, :, :1]), k[:, :, :-1]], 2)
            later = torch.cat([torch.zeros_like(v[:, :, :1]), v[:, :, :-1]], 2)
            yield "one key too few", other(late, later)
    if k.shape[1] > 1:
        yield "key and value heads permuted", other(k.roll(1, 1), v.roll(1, 1))
