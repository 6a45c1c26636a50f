"""What do the usual mistakes around √d look like? None of them raises an error.

Dividing twice (by hand, then again inside a library call), dividing by the wrong length, and queries or keys that are
not of size 1 to begin with.
"""

from __future__ import annotations

import math

import torch

from attnbook.experiments.saturation import jacobian_norm, weights
from attnbook.experiments.score_variance import scores
from attnbook.measure import experiment, measure_mean


@experiment
def run(
    n: int = 16, head_dim: int = 64, n_heads: int = 8, sequences: int = 64, queries: int = 32, seed: int = 3
) -> None:
    """Unit-normal queries and keys; each statistic is averaged over a sequence's rows, then over sequences."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(sequences, 1, queries, head_dim, generator=generator)
    k = torch.randn(sequences, 1, n, head_dim, generator=generator)
    too_long = math.sqrt(n_heads)  # √d_model instead of √head_dim divides by √n_heads too much
    for name, used in {"right": q, "twice": q / math.sqrt(head_dim), "d_model": q / too_long}.items():
        top = weights(used, k, divided=True).amax(-1)
        measure_mean(f"scaling.max_weight_{name}", top.mean(-1))
    _measure_sizes(generator, {"twice": math.sqrt(head_dim), "d_model": too_long}, head_dim)
    _measure_stretched(generator, head_dim)
    _measure_many_keys(generator, head_dim)


def _measure_sizes(
    generator: torch.Generator, too_small: dict[str, float], d: int, pairs: int = 1000, repeats: int = 20
) -> None:
    """The standard deviation of the scores that are divided by too much: what to look at before training."""
    q, k = (torch.randn(repeats, pairs, 1, d, generator=generator) for _ in range(2))
    for name, by in too_small.items():
        measure_mean(f"scaling.score_sd_{name}", scores(q / by, k, scale=None).std(dim=1))


def _measure_stretched(generator: torch.Generator, d: int, pairs: int = 1000, repeats: int = 20) -> None:
    """Queries twice and keys three times as long as they should be: the scores' standard deviation, after dividing."""
    q, k = (torch.randn(repeats, pairs, 1, d, generator=generator) for _ in range(2))
    measure_mean("scaling.stretched_sd", scores(2 * q, 3 * k, scale=None).std(dim=1))


def _measure_many_keys(generator: torch.Generator, d: int, n: int = 1024, sequences: int = 8) -> None:
    """With the division and many keys, is the Jacobian's norm √(e/n), as for scores with variance 1?"""
    q = torch.randn(sequences, 1, 64, d, generator=generator)
    k = torch.randn(sequences, 1, n, d, generator=generator)
    norm = jacobian_norm(weights(q, k, divided=True)).mean(-1)
    measure_mean("scaling.jacobian_over_estimate", norm / math.sqrt(math.e / n), unit="ratio")
