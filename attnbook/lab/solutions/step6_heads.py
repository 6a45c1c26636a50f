"""Step 6: heads, and grouped heads."""

import numpy as np


def multi_head(q, k, v, n_heads):
    """Attention in each head by itself, the outputs joined in the order of the heads.

    q: (t_q, n_heads · d), k: (t_kv, n_heads · d), v: (t_kv, n_heads · d_v). Head 0 has the first d components, head 1
    the next d. Returns (t_q, n_heads · d_v).
    """
    # hole: heads
    q, k, v = (x.reshape(len(x), n_heads, -1).transpose(1, 0, 2) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return (weights @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)
    # end


def grouped_heads(q, k, v, n_heads, n_kv_heads):
    """The same where neighbouring query heads share a head of keys and values; n_kv_heads divides n_heads.

    q: (t_q, n_heads · d), k: (t_kv, n_kv_heads · d), v: (t_kv, n_kv_heads · d_v). Returns (t_q, n_heads · d_v).
    """
    # hole: groups
    shared = n_heads // n_kv_heads
    k, v = (np.repeat(x.reshape(len(x), n_kv_heads, -1), shared, axis=1).reshape(len(x), -1) for x in (k, v))
    return multi_head(q, k, v, n_heads)
    # end
