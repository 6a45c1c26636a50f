"""Step 2: measure √d, with two functions: how far scores spread, and what that does to the largest weight."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from attnbook.lab import overflow
from attnbook.lab.step import Array, Case, Part, Step

SPREAD_FLAWS: Final = (
    *("variance", "divided_sd", "divided_by_d", "all_pairs", "no_mean", "no_count", "absolute_deviation"),
    *("products", "wrong_sum"),
)
WEIGHT_FLAWS: Final = (
    *("no_scale", "scale_twice", "scale_divides", "root_for_scale", "scale_and_root", "scale_late"),
    *("largest_score", "smallest", "every_weight", "whole_largest", "largest_of_keys", "added_up"),
    *("wrong_axis", "whole_softmax", "no_sum", "always_one", "no_maximum", "whole_maximum"),
)
OVERFLOWING: Final = ("no_sum", "no_maximum", "whole_maximum")
"""Those that plain Python tells by exceptions."""


def score_sd(q: Array, k: Array, *, ddof: int = 0, flaws: frozenset[str] = frozenset()) -> Array:
    """The standard deviation of the n dot products q_i·k_i. q, k (n, d) -> a number. Flaws: SPREAD_FLAWS.

    ddof: 0 divides the squares by n, 1 by n − 1.
    """
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    dots = _dots(q, k, flaws)
    if "divided_sd" in flaws:
        dots = dots / np.sqrt(q.shape[-1])
    if "divided_by_d" in flaws:
        dots = dots / q.shape[-1]
    away = dots if "no_mean" in flaws else dots - dots.mean()
    if "absolute_deviation" in flaws:
        return np.asarray(np.abs(away).mean())
    variance = (away**2).sum() / (1 if "no_count" in flaws else dots.size - ddof)
    return np.asarray(variance if "variance" in flaws else np.sqrt(variance))


def _dots(q: Array, k: Array, flaws: frozenset[str]) -> Array:
    """What the deviation is taken of: (n,), or with a flaw another number of values."""
    if "all_pairs" in flaws:
        return np.asarray(q @ k.T)
    if "products" in flaws:
        return np.asarray(q * k)
    return np.asarray((q * k).sum(axis=0 if "wrong_sum" in flaws else -1))


def largest_weight(q: Array, k: Array, scale: float, *, flaws: frozenset[str] = frozenset()) -> Array:
    """The mean over the queries of the largest weight. q (t_q, d), k (t_kv, d) -> a number. Flaws: WEIGHT_FLAWS."""
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        table = _weights(q @ k.T * _factor(q.shape[-1], scale, flaws), flaws)
        table = table * scale if "scale_late" in flaws else table
    if "every_weight" in flaws:
        return np.asarray(table.mean())
    if "whole_largest" in flaws:
        return np.asarray(table.max())
    axis = 0 if "largest_of_keys" in flaws else -1
    most = table.min(axis=axis) if "smallest" in flaws else table.max(axis=axis)
    return np.asarray(most.sum() if "added_up" in flaws else most.mean())


def _factor(d: int, scale: float, flaws: frozenset[str]) -> float:
    """What the scores are multiplied by."""
    factor = 1.0 if {"no_scale", "scale_late", "root_for_scale"} & flaws else scale
    if "scale_twice" in flaws:
        factor = scale**2
    if "scale_divides" in flaws:
        factor = 1 / scale
    return factor / float(np.sqrt(d)) if {"scale_and_root", "root_for_scale"} & flaws else factor


def _weights(scores: Array, flaws: frozenset[str]) -> Array:
    """Weights (t_q, t_kv) of scores (t_q, t_kv); inf and NaN come where a function that forgets the maximum has them.

    Its numbers are float64: the cases keep to scores that overflow in both float32 and float64, or in neither.
    """
    if "largest_score" in flaws:
        return scores
    axis = 0 if "wrong_axis" in flaws else None if "whole_softmax" in flaws else -1
    top = scores.max(axis=None if "whole_maximum" in flaws else axis, keepdims=True)
    e = np.exp(scores if {"no_maximum", "no_sum"} & flaws else scores - top)
    return e if {"no_sum", "always_one"} & flaws else np.asarray(e / e.sum(axis=axis, keepdims=True))


def _pairs_of_vectors() -> tuple[Case, ...]:
    """For score_sd: from two pairs that are followed by hand to odd sizes."""
    rng = np.random.default_rng(2)
    by_hand: tuple[Any, ...] = (
        ([[1.0], [2.0]], [[6.0], [1.0]]),  # dot products 6 and 2
        ([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]], [[2.0, 2.0, 1.0, 1.0], [2.0, 1.0, 0.0, 0.0]]),  # 6 and 2 again
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[0.0, 3.0], [2.0, 4.0], [8.0, -2.0]]),  # 0, 4 and 6
    )
    drawn = (rng.standard_normal((2, n, d)) + 0.5 for n, d in ((5, 3), (11, 7), (53, 17)))
    return tuple(Case(tuple(np.asarray(x, np.float32) for x in pair), ("q", "k")) for pair in (*by_hand, *drawn))


def _tables() -> tuple[Case, ...]:
    """For largest_weight: by hand, then scores that overflow where no maximum is subtracted, then odd sizes."""
    rng = np.random.default_rng(3)
    by_hand: tuple[Any, ...] = (
        ([[2.0]], [[1.0], [0.0]], 0.5),
        ([[2.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0] + [0.0] * 3, [0.0] * 4], 0.5),
        ([[1.0]], [[1000.0], [999.0]], 1.0),
        ([[1.0], [-1.0]], [[1000.0], [999.0]], 1.0),
        ([[1.0]], [[2000.0], [0.0]], 1.0),  # whoever subtracts the mean or the minimum overflows
    )
    drawn = (
        (rng.standard_normal((t_q, d)), rng.standard_normal((t_kv, d)), scale)
        for t_q, t_kv, d, scale in ((3, 5, 7, 0.75), (7, 3, 13, 1.0), (11, 17, 19, 19**-0.5))
    )
    return tuple(
        Case((np.asarray(q, np.float32), np.asarray(k, np.float32), scale), ("q", "k", "scale"))
        for q, k, scale in (*by_hand, *drawn)
    )


STEP = Step(
    key="2",
    stem="step2_root_d",
    page="lab/2-root-d",
    parts=(
        Part(
            name="score_sd",
            model=score_sd,
            cases=_pairs_of_vectors(),
            flaws=SPREAD_FLAWS,
            also=(partial(score_sd, ddof=1),),  # torch.std and statistics.stdev divide by n − 1
        ),
        Part(
            name="largest_weight",
            model=largest_weight,
            cases=_tables(),
            flaws=WEIGHT_FLAWS,
            recognisers=overflow.recognisers(largest_weight, OVERFLOWING, WEIGHT_FLAWS),
        ),
    ),
)
