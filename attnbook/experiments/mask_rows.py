"""What does a mask leave of a row of weights: exact zeros after the query, and a sum of 1, or less?

With the identity matrix as V, attention returns its own weights; with ones, their sum. That is how the weights are
read off here, so that what is measured is the package's attention and not a copy of its formula.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._attend import attend, measure_worst, weights
from attnbook.measure import experiment, measure, measure_mean
from attnbook.probes import causal_leak
from attnbook.reference import causal_mask, softmax


@experiment
def run(seed: int = 0, tokens: int = 7, head_dim: int = 16, repeats: int = 20_000) -> dict[str, Any]:
    """Random q and k, `repeats` times: masked before softmax, multiplied by 0 after it, and renormalised."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, repeats, 1, tokens, head_dim, generator=generator)
    keep = causal_mask(tokens, tokens, like=q)
    masked = weights(q, k, is_causal=True)
    future = masked[..., ~keep]

    measure("mask.visible_pairs", keep.sum())
    measure("mask.future_weight", future.max())
    errors = (masked.sum(-1) - 1).abs().amax(dim=(1, 2))
    measure_worst("mask.row_sum_error", errors)
    out = attend(q, k, v, is_causal=True)
    measure("mask.first_row_is_v0", torch.equal(out[..., 0, :], v[..., 0, :]))

    late = softmax(q @ k.mT / head_dim**0.5) * keep
    sums = late.sum(-1)[:, 0]  # (repeats, tokens)
    measure_mean("mask.late_first_sum", sums[:, 0].tolist())
    measure_mean("mask.late_middle_sum", sums[:, tokens // 2].tolist())
    measure("mask.late_leaks", not causal_leak(_mask_after, v[:3, 0]).ok)
    again = late / late.sum(-1, keepdim=True)
    difference = (again - masked).abs().amax(dim=(1, 2, 3))
    measure_worst("mask.renormalised_error", difference)
    measure("mask.renormalised_gap_float32", _gap_to_nan(torch.float32))
    measure("mask.renormalised_gap_float16", _gap_to_nan(torch.float16))

    _every_dtype(q, k, keep)
    return {"masked": masked.mean(0)[0], "late": late.mean(0)[0]}


def _mask_after(x: Tensor) -> Tensor:
    """(b, t, d) attending to itself, with the future multiplied by 0 after softmax."""
    score = x @ x.mT / math.sqrt(x.shape[-1])
    out: Tensor = (softmax(score) * causal_mask(x.shape[1], like=x)) @ x
    return out


def _gap_to_nan(dtype: torch.dtype) -> int:
    """How far above the visible score must a hidden one be for "times 0, then divided by the sum" to give NaN?"""
    for gap in range(200):
        weight = softmax(torch.tensor([0.0, gap], dtype=dtype)) * torch.tensor([1, 0])
        if (weight / weight.sum()).isnan().any():
            return gap
    raise AssertionError(f"no NaN in {dtype} up to a gap of 200")


def _every_dtype(q: Tensor, k: Tensor, keep: Tensor) -> None:
    zero = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        weight = weights(q.to(dtype), k.to(dtype), is_causal=True)
        zero.append(bool((weight[..., ~keep] == 0).all()))
        if dtype in (torch.float16, torch.bfloat16):
            errors = (weight.double().sum(-1) - 1).abs().amax(dim=(1, 2))
            name = str(dtype).removeprefix("torch.")
            measure_worst(f"mask.row_sum_{name}", errors)
    measure("mask.zero_in_every_dtype", all(zero))
