"""What do the two functions of the lab's step 2 find: how far scores spread, and how much weight one key then takes?

The functions are a reader's, of NumPy arrays or tensors: `score_sd(q, k)` and `largest_weight(q, k, scale)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from attnbook.experiments._reader import called
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import softmax

DIMS: Final = (4, 16, 64, 256)
SPREADS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""What scores are scaled to, whatever d is."""


def reference_score_sd(q: Any, k: Any) -> Any:
    """The standard deviation of q_i·k_i over the rows of q, k (n, d)."""
    return (q * k).sum(axis=-1).std()


def reference_largest_weight(q: Any, k: Any, scale: float) -> Any:
    """The mean over the queries of the largest weight; q (t_q, d), k (t_kv, d)."""
    weights: Any = softmax(q @ k.T * scale)
    return weights.max(axis=-1).mean()


@experiment
def run(
    score_sd: Callable[..., Any] = reference_score_sd,
    largest_weight: Callable[..., Any] = reference_largest_weight,
    seed: int = 0,
    pairs: int = 1000,
    queries: int = 64,
    keys: int = 16,
    repeats: int = 20,
) -> dict[str, Any]:
    """Unit-normal queries and keys, drawn `repeats` times for every d.

    Data: `spreads` (s,), and `largest`, d to the largest weight at each of them, (s,); `marks`, d to the pairs of
    spread and largest weight without and with the division, (2, 2).
    """
    score_sd, largest_weight = called(score_sd), called(largest_weight)
    rng = np.random.default_rng(seed)
    largest, marks = {}, {}
    for d in DIMS:
        rows = rng.standard_normal((2, repeats, pairs, d))
        spread = [(float(score_sd(q, k)), float(score_sd(q / d**0.5, k))) for q, k in zip(*rows, strict=True)]
        tables = [(rng.standard_normal((queries, d)), rng.standard_normal((keys, d))) for _ in range(2 * repeats)]

        def weight(scale: float, tables: Any = tables) -> list[float]:
            return [float(largest_weight(q, k, scale)) for q, k in tables]

        most = list(zip(weight(1.0), weight(d**-0.5), strict=True))
        for i, kind in enumerate(("plain", "divided")):
            measure_mean(f"lab.sd_{kind}_{d}", [pair[i] for pair in spread])
            measure_mean(f"lab.weight_{kind}_{d}", [pair[i] for pair in most])
        if d == 64:  # equal weights are 1/keys each
            measure_mean("lab.weight_over_even", [keys * divided for _, divided in most], unit="ratio")
        # Scores have √d as their spread, so this scale gives them the spread that is wanted.
        largest[d] = [np.mean(weight(wanted / d**0.5)) for wanted in SPREADS]
        marks[d] = np.stack([np.mean(spread, axis=0), np.mean(most, axis=0)], axis=-1)
    at_eight = [largest[d][SPREADS.index(8.0)] for d in DIMS]
    measure("lab.weight_at_8_differs", max(at_eight[1:]) - min(at_eight[1:]))
    measure("lab.weight_at_8_least_for_4", min(at_eight) == at_eight[0])
    _lookalikes(rng, score_sd)
    return {"spreads": SPREADS, "largest": largest, "marks": marks}


def _lookalikes(rng: np.random.Generator, score_sd: Callable[..., Any], d: int = 64, n: int = 1000) -> None:
    """Two wrong functions on the same draws, and where queries and keys have means of their own."""
    for name, mean in (("here", 0.0), ("shifted", 0.5)):
        q, k = rng.standard_normal((2, n, d)) + mean
        right = float(score_sd(q, k))
        measure(f"lab.sd_no_mean_{name}", abs(np.sqrt(((q * k).sum(-1) ** 2).mean()) / right - 1), unit="ratio")
        measure(f"lab.sd_all_pairs_{name}", abs((q @ k.T).std() / right - 1), unit="ratio")
