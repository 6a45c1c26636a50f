"""What every cache asks of new keys and values before it touches its memory."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from attnbook.errors import DTypeError, ShapeError
from attnbook.shapes import check_axes


def check_append(k: Tensor, v: Tensor, stored: tuple[Tensor, Tensor] | None) -> None:
    """Raises unless k and v belong together and to what is stored, if anything is.

    k (b, h, t, d), v (b, h, t, d_v); `stored` are tensors with the same axes h, d and d_v at places 1 and 3 (b is
    checked by the caller: pages have none). ShapeError for lengths, DTypeError for dtypes, ValueError for devices,
    TypeError for anything but tensors.
    """
    for name, x in (("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}: expected a torch tensor")
        check_axes(name, x, "b h t d")
        if not x.is_floating_point():
            raise DTypeError(f"{name} has dtype {x.dtype}: expected a floating-point dtype")
    for axis, letter in enumerate("bht"):
        if v.shape[axis] != k.shape[axis]:
            raise ShapeError(
                f"v has length {v.shape[axis]} (axis {letter}) but k has {k.shape[axis]}: they must be equal"
            )
    for name, x, other, there in (("v", v, "k", k), *_pairs(k, v, stored)):
        if x.dtype != there.dtype:
            raise DTypeError(f"{name} has dtype {x.dtype} but {other} has {there.dtype}: they must be equal")
        if x.device != there.device:
            raise ValueError(f"{name} is on device {x.device} but {other} on {there.device}: they must be equal")
    for name, x, other, there in _pairs(k, v, stored):
        for axis, words in ((1, "{} heads (axis h)"), (3, "{} components (axis d)")):
            if x.shape[axis] != there.shape[axis]:
                size = words.format(x.shape[axis])
                raise ShapeError(f"{name} has {size} but {other} has {there.shape[axis]}: they must be equal")


def check_batch(b: int, expected: int) -> None:
    """Raises ShapeError unless k has as many sequences as the cache."""
    if b != expected:
        raise ShapeError(f"k has batch {b} (axis b) but the cache has {expected}: they must be equal")


def check_whole(name: str, x: int, low: int, high: int | None = None, *, why: str = "") -> None:
    """Raises ValueError unless x is a whole number from low to high."""
    if isinstance(x, bool) or not isinstance(x, numbers.Integral) or x < low or (high is not None and x > high):
        expected = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name} is {x!r}: expected a whole number, {expected}{why}")


def whole_numbers(name: str, x: Any) -> list[int]:
    """Tensor, array or iterable of whole numbers as a list; DTypeError for fractions, TypeError for anything else."""
    found = x.tolist() if hasattr(x, "tolist") else x
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise TypeError(f"{name} is {x!r}: expected a list of whole numbers")
    found = list(found)
    for i, n in enumerate(found):
        if isinstance(n, bool) or not (isinstance(n, numbers.Integral) or (isinstance(n, Tensor) and n.ndim == 0)):
            raise DTypeError(f"{name}[{i}] is {n!r}: expected a whole number")
        if isinstance(n, Tensor) and (n.is_floating_point() or n.is_complex() or n.dtype == torch.bool):
            raise DTypeError(f"{name}[{i}] has dtype {n.dtype}: expected a whole number")
    return [int(n) for n in found]


def empty_like(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Memory of x's dtype and device that holds anything, NaN too, until it is written.

    An ordinary tensor also inside `torch.inference_mode`: one made there could not be written to outside it.
    """
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=x.dtype, device=x.device)


def _pairs(k: Tensor, v: Tensor, stored: tuple[Tensor, Tensor] | None) -> tuple[tuple[str, Tensor, str, Tensor], ...]:
    if stored is None:
        return ()
    return ("k", k, "the cache's k", stored[0]), ("v", v, "the cache's v", stored[1])
