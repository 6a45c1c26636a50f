"""Exercise of chapter 1: a test that finds a softmax over the wrong axis."""

import numpy as np


def rows_sum_to_one(fn):
    """True if fn's weights of every query sum to 1, False if not; whatever they are.

    fn(q, k, v): q (t_q, d), k (t_kv, d), v (t_kv, d_v), to an average (t_q, d_v).
    The test makes its own q, k and v, and sees nothing but what fn returns.
    """
    # hole: lines
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((5, 7)), rng.standard_normal((11, 7)), np.ones((11, 3))
    return np.allclose(fn(q, k, v), 1)
    # end
