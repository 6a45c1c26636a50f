"""Step 1: the three lines."""

import numpy as np


def attention(q, k, v):
    """Each query's weighted average of the values: softmax(q kᵀ / √d) v.

    q: (t_q, d), k: (t_kv, d), v: (t_kv, d_v). Returns (t_q, d_v).
    """
    # hole: lines
    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return weights @ v
    # end
