"""Up to which x can exp(x) be written in each floating-point type, and from which x is it 0?

And the second place where attention overflows, which subtracting the maximum does not reach: the scores themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.measure import experiment, measure
from attnbook.reference import attention, softmax

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@experiment
def run() -> dict[str, object]:
    """Search each type's own numbers for the last one that works. Data: `limit` maps a type's name to (zero, inf)."""
    limit = {}
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        top = last(lambda x: bool(torch.exp(x).isfinite()), 0.0, 1000.0, dtype)
        bottom = last(lambda x: bool(torch.exp(x) > 0), 0.0, -1000.0, dtype)
        measure(f"softmax.exp_limit_{name}", top)
        measure(f"softmax.exp_zero_{name}", bottom)
        limit[name] = bottom, top
    measure("softmax.exp_1000", torch.exp(torch.tensor(1000.0, dtype=torch.float64)))
    measure("softmax.largest_float16", torch.finfo(torch.float16).max)
    _measure_scores()
    _measure_small_weights()
    return {"limit": limit}


def last(works: Callable[[Tensor], bool], good: float, bad: float, dtype: torch.dtype) -> float:
    """The number of this type, between one that works and one that does not, after which `works` stops being true."""
    low, high = torch.tensor(good, dtype=dtype), torch.tensor(bad, dtype=dtype)
    while (middle := ((low.double() + high.double()) / 2).to(dtype)) not in (low, high):
        low, high = (middle, high) if works(middle) else (low, middle)
    return low.item()


def _measure_scores(d: int = 64, size: float = 40.0) -> None:
    """q·k of two float16 vectors, all of whose components are finite and harmless, is larger than float16 can hold."""
    q = torch.full((1, 1, 1, d), size, dtype=torch.float16)
    k = torch.cat([q, -q], dim=2)
    plain = q @ k.mT  # d · size² = 102 400: inf
    measure("softmax.float16_score_is_inf", bool(plain.isinf().all()))
    measure("softmax.subtracting_does_not_save_inf", bool(softmax(plain).isnan().any()))
    measure("softmax.float32_scores_save_it", bool(attention(q, k, k).isfinite().all()))


def _measure_small_weights(keys: int = 1000, gap: float = 20.0, value: float = 6e4) -> None:
    """Weights too small for float16, many of them, on large values: gone if weights are float16, kept in float32."""
    q = torch.ones(1, 1, 1, 1, dtype=torch.float16)
    k, v = (torch.full((1, 1, keys + 1, 1), x, dtype=torch.float16) for x in (0.0, value))
    k[:, :, 0], v[:, :, 0] = gap, 0.0
    score = q @ k.mT
    e = torch.exp(score - score.amax(-1, keepdim=True))
    measure("softmax.half_weights_output", (e / e.sum(-1, keepdim=True) @ v).item())
    measure("softmax.single_weights_output", attention(q, k, v, scale=1.0).item())
