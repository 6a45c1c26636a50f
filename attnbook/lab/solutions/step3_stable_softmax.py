"""Step 3: a softmax that does not overflow."""

import numpy as np


def softmax(x):
    """Softmax over the last axis: weights that sum to 1, however large or small the scores are.

    x: (n,), (t, n) or with more axes; −inf gets exactly 0. At least one score of each row is finite. Returns x's shape.
    """
    # hole: softmax
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
    # end
