"""Attention, whole: score, weight, output.

Everything else in this package makes these three lines stable, cheap, or aware of order.
"""

from __future__ import annotations

from attnbook.reference.arrays import Array
from attnbook.reference.softmax import softmax


def attention(q: Array, k: Array, v: Array) -> Array:
    """Average the rows of v, weighted by how well keys fit queries.

    q (..., t_q, d), k (..., t_kv, d), v (..., t_kv, d_v)
    -> (..., t_q, d_v); NumPy arrays or torch tensors.
    Vaswani et al. 2017, equation 1.
    """
    score = q @ k.mT / q.shape[-1] ** 0.5  # (..., t_q, t_kv)
    weight = softmax(score)  # each row sums to 1
    out = weight @ v  # (..., t_q, d_v)
    return out
