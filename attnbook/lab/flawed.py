"""Attention in NumPy and float64 with mistakes on demand: the right answer of the lab, and imitations of wrong ones.

The reference (`attnbook.reference`) loads torch, which a check of seven lines of NumPy should not wait for. That both
agree wherever no mistake is asked for is under test.
"""

from __future__ import annotations

import numpy as np

from attnbook.lab.step import Array


def softmax(x: Array, *, axis: int | None = -1) -> Array:
    """Softmax of `x` over one axis, or over the whole array for None; entries of −inf get exactly 0."""
    x = np.asarray(x, np.float64)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def weights(scores: Array, flaws: frozenset[str]) -> Array:
    """Weights (…, t_q, t_kv) from scores of the same shape. Flaws: wrong_axis, whole_softmax, no_softmax, no_sum."""
    if "no_softmax" in flaws:
        return scores
    if "no_sum" in flaws:
        return np.exp(scores)
    if "whole_softmax" in flaws:
        return softmax(scores, axis=None)
    return softmax(scores, axis=-2 if "wrong_axis" in flaws else -1)


def scale(q: Array, k: Array, v: Array, flaws: frozenset[str]) -> float:
    """What scores are multiplied by. Flaws: no_scale, scale_by_d, scale_up, scale_by_keys, scale_by_values."""
    d = q.shape[-1]
    if "no_scale" in flaws:
        return 1.0
    if "scale_by_d" in flaws:
        return 1.0 / float(d)
    if "scale_up" in flaws:
        return float(np.sqrt(d))
    if "scale_by_keys" in flaws:
        return 1.0 / float(np.sqrt(k.shape[-2]))
    if "scale_by_values" in flaws:
        return 1.0 / float(np.sqrt(v.shape[-1]))
    return 1.0 / float(np.sqrt(d))


def attention(q: Array, k: Array, v: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
    """softmax(q kᵀ/√d) v of q (t_q, d), k (t_kv, d), v (t_kv, d_v): (t_q, d_v), with the flaws of `scale`, `weights`.

    And of its own: keys_for_values, no_values.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    table = weights(q @ k.T * scale(q, k, v, flaws), flaws)
    if "no_values" in flaws:
        return table
    return np.asarray(table @ (k if "keys_for_values" in flaws else v))
