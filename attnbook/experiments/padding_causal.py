"""Sequences of different lengths in one causal batch: does each come out as if it were alone?

The filling is loud garbage, so that whoever looks at it shows it; and, in the end, NaN.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure
from attnbook.reference import causal_mask, padding_mask, softmax

Side = Literal["left", "right"]


@experiment
def run(
    seed: int = 0, lengths: tuple[int, ...] = (7, 4, 5), tokens: int = 7, head_dim: int = 16, garbage: float = 10.0
) -> dict[str, Any]:
    """Left and right filling, with and without a padding mask, each sequence compared with itself alone."""
    generator = torch.Generator().manual_seed(seed)
    alone = [torch.randn(3, 1, 1, length, head_dim, generator=generator) for length in lengths]

    def batch(side: Side) -> Tensor:
        """(3, b, 1, t, d): q, k, v of all sequences, with garbage at `side`."""
        packed = garbage * torch.randn(3, len(lengths), 1, tokens, head_dim, generator=generator)
        for b, one in enumerate(alone):
            packed[:, b : b + 1, :, _place(lengths[b], tokens, side)] = one
        return packed

    def error(side: Side, *, masked: bool, is_causal: bool = True, dtype: torch.dtype = torch.float32) -> float:
        q, k, v = batch(side).to(dtype)
        mask = padding_mask(torch.tensor(lengths), tokens, side=side) if masked else None
        out = attend(q, k, v, mask=mask, is_causal=is_causal)
        worst = 0.0
        for b, one in enumerate(alone):
            expected = attend(*one.to(dtype), is_causal=is_causal)
            got = out[b : b + 1, :, _place(lengths[b], tokens, side)]
            worst = max(worst, float((got - expected).abs().max()))
        return worst

    sides: tuple[Side, Side] = ("left", "right")
    right = [error(side, masked=True, is_causal=causal) for side in sides for causal in (True, False)]
    measure("mask.padded_error", max(right))
    measure("mask.right_without_mask_error", error("right", masked=False))
    measure("mask.left_without_mask_error", error("left", masked=False))
    measure("mask.encoder_right_without_mask_error", error("right", masked=False, is_causal=False))
    half = [error(side, masked=True, dtype=dtype) for side in sides for dtype in (torch.float16, torch.bfloat16)]
    measure("mask.padded_half_error", max(half))

    for side in sides:
        q, k, v = batch(side)
        mask = padding_mask(torch.tensor(lengths), tokens, side=side)
        ones = attend(q, k, torch.ones_like(v), mask=mask, is_causal=True)
        measure(f"mask.{side}_empty_rows", (ones == 0).all(-1).sum())

    q, k, v = batch("right")
    mask = padding_mask(torch.tensor(lengths), tokens)
    finite = attend(q, k, v, mask=mask, is_causal=True)
    v[~mask.mT.expand_as(v)] = torch.nan  # what a cache may hold where nothing was written yet
    _measure_spoiled(q, k, v, mask, finite)
    return {}


def _measure_spoiled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, finite: Tensor) -> None:
    """With NaN in the filling: weight · NaN as one writes it, torch's attention, ours. The first sequence has none."""
    keep = mask & causal_mask(q.shape[-2], like=q)
    ways = {
        "": softmax((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~keep, -torch.inf)) @ v,
        "_torch": F.scaled_dot_product_attention(q, k, v, attn_mask=keep),
    }
    for name, out in ways.items():
        spoiled = bool(out[1:].isnan().all()) and not bool(out[0].isnan().any())
        measure(f"mask.nan_in_filling_spreads{name}", spoiled)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    ours = attend(*leaves, mask=mask, is_causal=True)
    measure("mask.nan_in_filling_error", (ours - finite)[mask.mT.expand_as(ours)].abs().max())  # of the tokens
    gradients = torch.autograd.grad(ours.sum(), leaves)
    measure("mask.nan_in_filling_gradient_nans", sum(int(x.isnan().sum()) for x in gradients))


def _place(length: int, tokens: int, side: Side) -> slice:
    """Where the tokens stand."""
    return slice(0, length) if side == "right" else slice(tokens - length, tokens)
