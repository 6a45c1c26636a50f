"""Softmax: positive weights that sum to 1 and keep the order of the scores.

    softmax(x)_i = exp(x_i) / Σ_j exp(x_j)

Adding a constant to every x changes nothing, so the largest x is subtracted first: then the largest exp is exp(0) = 1
and nothing overflows. Two choices are ours. Half-precision input is calculated in float32. And a row of −inf, where
the formula says 0/0, gives zeros: a query that may look nowhere takes nothing. Its gradient is 0 as well.
What subtracting the largest costs in accuracy: Blanchard, Higham and Higham 2021.
"""

from __future__ import annotations

from numbers import Integral

from attnbook.errors import ShapeError
from attnbook.reference.arrays import Array, check_floating, namespace, working_dtype


def softmax(x: Array, axis: int = -1) -> Array:
    """Softmax along one axis, in the dtype of x: weights ≥ 0 that sum to 1, or zeros where every x is −inf.

    NumPy arrays and torch tensors of any shape; an axis of length 0 stays empty. A +inf or NaN among the x makes its
    row NaN. Raises DTypeError for integers: weights are fractions; ShapeError
    for an axis that x does not have.
    """
    xp = namespace(x)
    check_axis(x, axis)
    z = xp.astype(x, working_dtype("x", x))
    e = xp.exp(z - finite_max(z, axis))
    total = xp.sum(e, axis=axis, keepdims=True)
    return xp.astype(e / xp.where(total == 0, 1.0, total), x.dtype)


def naive_softmax(x: Array, axis: int = -1) -> Array:
    """Softmax as the formula is written, in the arithmetic of x's own dtype, whatever its shape.

    It overflows as soon as one exp does: inf / inf is NaN. It is here to be compared with.
    Raises DTypeError for integers, ShapeError for an axis that x does not have.
    """
    check_floating("x", x)
    check_axis(x, axis)
    xp = namespace(x)
    e = xp.exp(x)
    return e / xp.sum(e, axis=axis, keepdims=True)


def logsumexp(x: Array, axis: int = -1) -> Array:
    """The log-sum-exp log Σ exp(x) along one axis, which goes; natural logarithm, float32 (float64 for float64).

    −inf where every x is −inf or the axis is empty, with gradient 0. softmax(x) is exp(x − logsumexp(x)).
    Raises DTypeError for integers, ShapeError for an axis that x does not have.
    """
    xp = namespace(x)
    check_axis(x, axis)
    z = xp.astype(x, working_dtype("x", x))
    top = finite_max(z, axis)
    total = xp.sum(xp.exp(z - top), axis=axis, keepdims=True)
    # log(0) would be right in value, −inf, but not in its gradient, inf · 0: leave no log(0) behind.
    lse = xp.where(total == 0, -xp.inf, top + xp.log(xp.where(total == 0, 1.0, total)))
    return xp.squeeze(lse, axis=axis)


def check_axis(x: Array, axis: int) -> None:
    """Raises ShapeError for an axis that x does not have."""
    if not isinstance(axis, Integral) or not -len(x.shape) <= axis < len(x.shape):
        raise ShapeError(f"axis is {axis!r} but x has {len(x.shape)} axes {tuple(x.shape)}")


def finite_max(z: Array, axis: int) -> Array:
    """The largest z along an axis of length 1, for subtracting: 0 where it would be −inf (−inf − −inf is NaN)."""
    xp = namespace(z)
    if z.shape[axis] == 0:  # no largest among none
        return xp.sum(z, axis=axis, keepdims=True)
    top = xp.max(z, axis=axis, keepdims=True)
    return xp.where(top == -xp.inf, 0.0, top)
