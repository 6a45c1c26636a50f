"""Causal attention in NumPy and float64, with mistakes on demand: which pairs are seen, and how the others are hidden.

Some mistakes leave a query nothing to see. What comes out there depends on how the function hides, and is no mistake of
its own: `empty` says which of the answers to imitate.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from attnbook.lab import flawed
from attnbook.lab.step import Array

PAIRS: Final = (
    *("no_mask", "own_hidden", "future_seen", "only_future", "future_and_self"),
    *("top_left", "transposed", "shifted_away"),
)
"""Flaws of `seen`."""

HIDING: Final = ("mask_after", "zero_scores", "renormalised", "no_maximum", "whole_maximum", "zero_times_inf")
"""Flaws of how the pairs that are not seen are hidden."""

LEAVES_EMPTY: Final = ("own_hidden", "only_future", "shifted_away")
"""Flaws that leave some query no key at all."""

Empty = Literal["nan", "zero", "mean", "all"]


def seen(t_q: int, t_kv: int, flaws: frozenset[str] = frozenset()) -> Array:
    """Which key each query sees, booleans (t_q, t_kv): j ≤ i + t_kv − t_q, or with the flaws of `PAIRS` others."""
    offset = t_kv - t_q
    if "top_left" in flaws:
        offset = 0
    if "shifted_away" in flaws:
        offset = -offset
    i, j = np.arange(t_q)[:, None], np.arange(t_kv)
    own = i + offset
    if "no_mask" in flaws:
        return np.ones((t_q, t_kv), bool)
    if "own_hidden" in flaws:
        return j < own
    if "future_seen" in flaws:
        return j <= own + 1
    if "only_future" in flaws:
        return j > own
    if "future_and_self" in flaws:
        return j >= own
    if "transposed" in flaws:
        return j >= i - offset
    return j <= own


def causal_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    flaws: frozenset[str] = frozenset(),
    hidden: float = -np.inf,
    added: bool = False,
    empty: Empty = "nan",
) -> Array:
    """Attention of q (t_q, d) to k (t_kv, d) and v (t_kv, d_v), each query seeing its own position and those before.

    flaws: those of `PAIRS`, `HIDING` and `flawed.attention`. hidden: the score of a pair that is not seen, put there or
    with `added` added. empty: what a query gets that sees nothing: NaN, 0, the mean of the values, or what it would get
    without a mask.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    keep = seen(len(q), len(k), flaws)
    scores = q @ k.T * flawed.scale(q, k, v, flaws)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        table = _weights(scores, keep, flaws, hidden, added)
        if empty != "nan":
            rows = ~keep.any(axis=-1)
            instead = {"zero": np.zeros_like(table), "mean": np.full_like(table, 1 / len(k))}
            table[rows] = (instead[empty] if empty in instead else flawed.softmax(scores))[rows]
        return np.asarray(table @ (k if "keys_for_values" in flaws else v))


def _weights(scores: Array, keep: Array, flaws: frozenset[str], hidden: float, added: bool) -> Array:
    """Weights (t_q, t_kv) of scores of that shape, of which only those in `keep` may count."""
    late = flaws & {"mask_after", "renormalised"}
    if "zero_scores" in flaws:
        scores = np.where(keep, scores, 0.0)
    elif not late:
        scores = np.where(keep, scores, scores + hidden if added else hidden)
    if "zero_times_inf" in flaws:
        scores = np.full_like(scores, np.nan)
    if "no_maximum" in flaws:
        table = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    elif "whole_maximum" in flaws:
        e = np.exp(scores - scores.max())
        table = e / e.sum(axis=-1, keepdims=True)
    else:
        table = flawed.weights(scores, flaws)
    if late:
        table = table * keep
    if "renormalised" in flaws:
        table = table / table.sum(axis=-1, keepdims=True)
    return np.asarray(table)
