"""Exercise of chapter 7: turn queries and keys by their positions."""

import numpy as np


def rope(x, positions, base):
    """Each pair of components of x, x_i and x_(i + d/2), turned by the angle position · base^(−2i/d), in radians.

    x: (t, d) with an even d. positions: (t,), whole numbers. base: a number above 1. Returns (t, d).
    """
    # hole: lines
    half = x.shape[1] // 2
    speed = base ** (-np.arange(half) / half)
    angle = positions[:, None] * speed
    first, second = x[:, :half], x[:, half:]
    turned = first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle)
    return np.concatenate(turned, axis=1)
    # end
