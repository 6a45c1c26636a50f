"""Exercise of chapter 2: a token looks at everybody but itself."""

import numpy as np


def attend_to_others(x):
    """softmax(x xᵀ / √d) x, in which no token sees itself.

    x: (t, d) with at least two tokens, used as queries, keys and values. Returns (t, d).
    """
    # hole: lines
    scores = x @ x.T / np.sqrt(x.shape[-1])
    np.fill_diagonal(scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ x
    # end
