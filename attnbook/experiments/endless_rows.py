"""What does each softmax make of a row of −inf, and of scores like −6e4 and −7e4?

A row of −inf is a query that may look nowhere. Very negative scores are not that, and are easily taken for it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.measure import experiment, measure
from attnbook.reference import attention, logsumexp, naive_softmax, softmax


@experiment
def run(seed: int = 3) -> dict[str, object]:
    """One row of four −inf, then rows of very negative scores. Data: `rows` maps each choice to its weights."""
    rows = _measure_minus_infinity(torch.full((4,), -torch.inf))
    _measure_attention(seed)
    _measure_very_negative(torch.tensor([-6e4, -7e4]))
    return {"rows": rows}


def subtract_maximum(x: Tensor) -> Tensor:
    """Softmax with the maximum subtracted and no thought of −inf: −inf − −inf is NaN."""
    e = torch.exp(x - x.max())
    return e / e.sum()


def start_from_zero(x: Tensor) -> Tensor:
    """A mistake to look at: the running maximum starts at 0 instead of −inf, so it is never below 0."""
    e = torch.exp(x - x.max().clamp(min=0))
    return e / e.sum()


def _measure_minus_infinity(empty: Tensor) -> dict[str, Tensor]:
    finite = torch.full_like(empty, torch.finfo(empty.dtype).min)
    rows = {
        "naive": naive_softmax(empty), "subtract": subtract_maximum(empty), "torch": torch.softmax(empty, 0),
        "finite": torch.softmax(finite, 0), "ours": softmax(empty),
    }  # fmt: skip
    for choice, weight in rows.items():
        measure(f"softmax.empty_row_{choice}", weight[0])
    measure("softmax.empty_row_lse", logsumexp(empty))
    return rows


def _measure_attention(seed: int) -> None:
    """A query that may look nowhere, beside one that may: output, and gradients from that output alone."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, 1, t, 5, generator=generator).requires_grad_() for t in (2, 3, 3))
    mask = torch.tensor([[True, True, True], [False, False, False]])
    out, lse = attention(q, k, v, mask=mask, return_lse=True)
    out[0, 0, 1].sum().backward()
    gradients = [x.grad for x in (q, k, v) if x.grad is not None]
    measure("softmax.empty_query_output", out[0, 0, 1].detach().abs().max())
    measure("softmax.empty_query_lse", lse[0, 0, 1].detach())
    measure("softmax.empty_query_gradients_are_zero", len(gradients) == 3 and not any(g.any() for g in gradients))


def _measure_very_negative(x: Tensor) -> None:
    first: dict[str, Callable[[Tensor], Tensor]] = {
        "naive": naive_softmax, "from_zero": start_from_zero, "ours": softmax,
    }  # fmt: skip
    for choice, f in first.items():
        measure(f"softmax.very_negative_{choice}", f(x)[0])
    half = x.half()
    measure("softmax.float16_drops_7e4", bool(half[1] == -torch.inf))
    measure("softmax.float16_pair_of_7e4", softmax(half[1:].expand(2)).sum())
    measure("softmax.float32_pair_of_7e4", softmax(x[1:].expand(2)).sum())
    # −1e4 "for −inf" on the second of two keys whose scores are below it: the hidden key gets everything.
    hidden = torch.cat([x[:1], torch.tensor([-1e4])])
    measure("softmax.hidden_by_1e4", softmax(hidden)[1])
