"""Exercise of chapter 9d: which keys does a window show?"""

import numpy as np


def window_mask(t_q, t_kv, window):
    """May query i see key j? The last `window` keys up to its own place, none after it.

    Its own place is one of them: i + t_kv − t_q, so that the last query is at the last key.
    t_q, t_kv, window: whole numbers from 1.
    Returns booleans (t_q, t_kv), True where it may see.
    """
    # hole: lines
    place = np.arange(t_q)[:, None] + t_kv - t_q
    j = np.arange(t_kv)[None, :]
    return (j <= place) & (j > place - window)
    # end
