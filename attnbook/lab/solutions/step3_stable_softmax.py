"""Step 3: a softmax that does not overflow."""

import numpy as np


def softmax(x):
    """Softmax over the last axis: whatever the scores are, the weights sum to 1.

    x: (n,), (t, n) or more axes; every row has a score that is finite.
    Returns the shape of x. A score of −inf gets exactly 0.
    """
    # hole: softmax
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
    # end
