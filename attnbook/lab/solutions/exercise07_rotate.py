"""Exercise of chapter 7: turn queries and keys by their positions."""

import numpy as np


def rope(x, positions, base):
    """Pairs x_i and x_(i + d/2) of x turned by position · base^(−2i/d) radians.

    x: (t, d) with an even d.
    positions: (t,), whole numbers.
    base: a number above 1.
    Returns (t, d).
    """
    # hole: lines
    half = x.shape[1] // 2
    speed = base ** (-np.arange(half) / half)
    angle = positions[:, None] * speed
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[:, :half], x[:, half:]
    turned = a * cos - b * sin, a * sin + b * cos
    return np.concatenate(turned, axis=1)
    # end
