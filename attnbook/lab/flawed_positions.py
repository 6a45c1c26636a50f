"""Attention with positions and the gap of a permutation, in NumPy and float64, with mistakes on demand."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnbook.lab import flawed
from attnbook.lab.step import Array

ADDING = (
    *("positions_in_values", "no_positions", "only_queries", "only_keys", "subtracted", "multiplied"),
    *("scored_apart", "concatenated", "added_to_output", "future_hidden"),
)
"""Flaws of `attention_with_positions`, beside those of the softmax and of the scale."""

COMPARING = (
    *("input_only", "output_only", "inverse_output", "inverse_order", "columns"),
    *("signed", "mean", "squared", "total", "norm", "smallest"),
)
"""Flaws of `reordered_gap`; the first line compares other things, the second sums them up in another way."""


def attention_with_positions(x: Array, p: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
    """softmax((x + p)(x + p)ᵀ/√d) x of tokens x and positions p, both (t, d)."""
    x, p = (np.asarray(a, np.float64) for a in (x, p))
    placed = x - p if "subtracted" in flaws else x * p if "multiplied" in flaws else x + p
    plain = "no_positions" in flaws
    q = x if plain or "only_keys" in flaws else placed
    k = x if plain or "only_queries" in flaws else placed
    v = placed if "positions_in_values" in flaws else x
    scores = q @ k.T
    if flaws & {"scored_apart", "concatenated"}:
        scores = x @ x.T + p @ p.T
    scores = scores * flawed.scale(q, k, v, flaws)
    if "concatenated" in flaws:
        scores = scores / np.sqrt(2.0)  # vectors of twice the length
    if "future_hidden" in flaws:
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    out = flawed.weights(scores, flaws) @ v
    return np.asarray(out + p if "added_to_output" in flaws else out)


def running_sum(x: Any) -> Any:
    """Each row becomes the sum of all rows so far, which depends on their order. x: (t, d), array or tensor."""
    return _as_came(_rows(x).cumsum(0), x)


def times_row_number(x: Any) -> Any:
    """The first row once, the second twice and so on, which depends on their order. x: (t, d), array or tensor."""
    rows = _rows(x)
    return _as_came(rows * np.arange(1, len(rows) + 1)[:, None], x)


def along_each_row(x: Any) -> Any:
    """Each component becomes the sum of its row's so far, whatever the order of rows. x: (t, d), array or tensor."""
    return _as_came(_rows(x).cumsum(1), x)


def plus_all_rows(x: Any) -> Any:
    """The sum of all rows is added to each, whatever their order. x: (t, d), array or tensor."""
    rows = _rows(x)
    return _as_came(rows + rows.sum(0), x)


def _rows(x: Any) -> Array:
    return np.asarray(x, np.float64)


def _as_came(made: Array, x: Any) -> Any:
    """An array, or a tensor where x is one, of x's dtype."""
    return x.new_tensor(made) if hasattr(x, "new_tensor") else made.astype(getattr(x, "dtype", np.float64))


def reordered_gap(fn: Any, x: Array, order: Array, *, flaws: frozenset[str] = frozenset()) -> Any:
    """The largest absolute difference between fn(x[order]) and fn(x)[order]."""
    x, order = np.asarray(x, np.float64), np.asarray(order)
    back = np.argsort(order)
    if "inverse_order" in flaws:
        order, back = back, order
    if "columns" in flaws:
        difference = fn(x[:, order]) - fn(x)[:, order]
    elif "input_only" in flaws:
        difference = fn(x[order]) - fn(x)
    elif "output_only" in flaws:
        difference = fn(x) - fn(x)[order]
    else:
        difference = fn(x[order]) - fn(x)[back if "inverse_output" in flaws else order]
    return _summed_up(difference, flaws)


def _summed_up(difference: Array, flaws: frozenset[str]) -> Any:
    if "signed" in flaws:
        return difference.max()
    if "squared" in flaws:
        return (difference**2).mean()
    if "norm" in flaws:
        return np.sqrt((difference**2).sum())
    size = np.abs(difference)
    if "total" in flaws:
        return size.sum()
    if "mean" in flaws:
        return size.mean()
    return size.min() if "smallest" in flaws else size.max()
