"""Step 2: measure √d."""

import numpy as np


def score_sd(q, k):
    """The standard deviation of n dot products, which are not divided by √d.

    q, k: (n, d): one dot product of each query with the key in the same row.
    Returns a number. Divide the sum of the squares by n or by n − 1, as you like.
    """
    # hole: spread
    dots = (q * k).sum(axis=-1)
    return np.sqrt(((dots - dots.mean()) ** 2).mean())
    # end


def largest_weight(q, k, scale):
    """The largest weight of each query, averaged over the queries.

    q: (t_q, d).
    k: (t_kv, d).
    scale: what the dot products are multiplied by.
    Returns a number.
    """
    # hole: largest
    scores = q @ k.T * scale
    scores = scores - scores.max(axis=-1, keepdims=True)  # changes no weight, and exp cannot overflow
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return weights.max(axis=-1).mean()
    # end
