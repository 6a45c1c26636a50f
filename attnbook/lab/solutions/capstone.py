"""The capstone: your own attention inside a trained model."""

import numpy as np

from attnbook.lab.solutions.step4_causal_mask import causal_attention


def attention(q, k, v):
    """Causal attention of every query head to the head of keys and values that it shares with its neighbours.

    q: (n_heads, t_q, d), k and v: (n_kv_heads, t_kv, d), where n_kv_heads divides n_heads and t_q ≤ t_kv: the queries
    are the last t_q of the t_kv positions, as with a cache. Returns (n_heads, t_q, d).
    """
    # hole: heads
    shared = len(q) // len(k)
    return np.stack([causal_attention(q[h], k[h // shared], v[h // shared]) for h in range(len(q))])
    # end
