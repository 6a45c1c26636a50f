"""Exercise of chapter 9d: which keys does a window show?"""

import numpy as np


def window_mask(t_q, t_kv, window):
    """May query i see key j? The last `window` keys up to its own, which is one of them, and none after it.

    Query i stands at key i + t_kv − t_q: the last query at the last key. Returns booleans (t_q, t_kv), True = may see.
    """
    # hole: lines
    place = np.arange(t_q)[:, None] + t_kv - t_q
    j = np.arange(t_kv)[None, :]
    return (j <= place) & (j > place - window)
    # end
