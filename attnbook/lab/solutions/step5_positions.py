"""Step 5: permutations and positions."""

import numpy as np


def attention_with_positions(x, p):
    """Self-attention in which queries and keys know their positions: both are x + p; the values are x.

    x: tokens (t, d), p: position vectors (t, d). Returns softmax((x + p)(x + p)ᵀ / √d) x, (t, d). No mask.
    """
    # hole: attention
    placed = x + p
    scores = placed @ placed.T / np.sqrt(x.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ x
    # end


def reordered_gap(fn, x, order):
    """How far fn is from permuting its output as its input is permuted: the largest absolute difference.

    fn maps tokens (t, d) to outputs of the same shape, x: (t, d), order: (t,) integers; row i of the permuted tokens is
    row order[i] of x. Compares fn of the permuted tokens with the permuted fn(x). Returns one number, 0 for no gap.
    """
    # hole: gap
    return np.abs(fn(x[order]) - fn(x)[order]).max()
    # end
