"""Step 7: tiles, and online softmax."""

import numpy as np


def tiled_attention(q, k, v, block):
    """softmax(q kᵀ / √d) v, with the keys taken `block` at a time; never a table of all queries and all keys.

    q: (t_q, d), k: (t_kv, d), v: (t_kv, d_v). The last tile may be shorter. Returns (t_q, d_v).
    """
    # hole: start
    largest = np.full((len(q), 1), -np.inf, q.dtype)
    total = np.zeros((len(q), 1), q.dtype)
    out = np.zeros((len(q), v.shape[-1]), q.dtype)
    # end
    for start in range(0, len(k), block):
        k_tile, v_tile = k[start : start + block], v[start : start + block]
        # hole: tile
        scores = q @ k_tile.T / q.shape[-1] ** 0.5
        new = np.maximum(largest, scores.max(axis=-1, keepdims=True))
        shrink, weights = np.exp(largest - new), np.exp(scores - new)
        total = total * shrink + weights.sum(axis=-1, keepdims=True)
        out = out * shrink + weights @ v_tile
        largest = new
        # end
    # hole: end
    return out / total
    # end
