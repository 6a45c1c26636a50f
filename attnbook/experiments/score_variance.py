"""How far do the scores q·k spread as vectors get longer, and what does the division by √d do to that?

Scores are read from `attention` itself: a query that sees a single key has that key's score as its log-sum-exp.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention, softmax


@experiment
def run(dims: tuple[int, ...] = (16, 64, 256, 1024), pairs: int = 1000, repeats: int = 20, seed: int = 3) -> Any:
    """Draw pairs of vectors with independent unit-normal components, in `repeats` groups, for every length d.

    Data: `plain` and `divided` map d to all scores, (repeats, pairs).
    """
    generator = torch.Generator().manual_seed(seed)
    plain, divided = {}, {}
    for d in dims:
        q, k = (torch.randn(repeats, pairs, 1, d, generator=generator) for _ in range(2))
        plain[d], divided[d] = scores(q, k, scale=1.0), scores(q, k, scale=None)
        measure_mean(f"scaling.variance_per_d_{d}", plain[d].var(dim=1) / d)
        measure_mean(f"scaling.score_sd_{d}", plain[d].std(dim=1))
        measure_mean(f"scaling.divided_variance_{d}", divided[d].var(dim=1))
    if 64 in dims:
        measure_mean("scaling.within_8", (plain[64].abs() <= 8).float().mean(dim=1), unit="ratio")
    high, low = softmax(torch.tensor([8.0, -8.0], dtype=torch.float64))
    measure("scaling.score_ratio", high / low, unit="ratio")
    return {"plain": plain, "divided": divided}


def scores(q: torch.Tensor, k: torch.Tensor, scale: float | None) -> torch.Tensor:
    """The score that attention gives each pair. q, k (repeats, pairs, 1, d) -> (repeats, pairs)."""
    lse: torch.Tensor
    _, lse = attention(q, k, k, scale=scale, return_lse=True)
    return lse[..., 0]
