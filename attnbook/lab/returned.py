"""Numbers out of whatever a reader's function returns: arrays, tensors, numbers, lists of any of them."""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from attnbook.lab.step import Array


class NotNumbers(Exception):
    """No array of numbers can be made of it; the text says what it is."""


def numbers(value: object) -> tuple[Array, str]:
    """The value as an array of float64, complex128, int64 or bool, and the name of the type that it had.

    Python's own numbers are "float", "int", "bool" or "complex", and so are lists of them. Raises NotNumbers.
    """
    array, dtype = _read(value)
    if array.dtype.kind == "f":
        return array.astype(np.float64), dtype
    if array.dtype.kind in "iu":
        return array.astype(np.int64), dtype
    if array.dtype.kind == "c":
        return array.astype(np.complex128), dtype
    if array.dtype.kind == "b":
        return array, dtype
    raise NotNumbers(f"{type(value).__name__}, dtype {dtype}")


def _read(value: object) -> tuple[Array, str]:
    if isinstance(value, bool | int | float | complex):
        return np.asarray(value), type(value).__name__
    if isinstance(value, Fraction | Decimal):
        return np.asarray(float(value)), type(value).__name__
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return _read(value.tolist())  # an array of Python's objects may be one of numbers
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value), value.dtype.name
    torch = sys.modules.get("torch")  # the reader's; nothing is loaded for the question
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value, torch)
    if isinstance(value, list | tuple):
        return _rows(value)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return array, array.dtype.name
    raise NotNumbers(type(value).__name__)


def _tensor(value: Any, torch: Any) -> tuple[Array, str]:
    dtype = str(value.dtype).removeprefix("torch.")
    plain = value.detach().cpu()
    if plain.dtype == torch.bfloat16:  # NumPy has none
        plain = plain.float()
    return plain.resolve_conj().resolve_neg().numpy(), dtype


def _rows(value: list[Any] | tuple[Any, ...]) -> tuple[Array, str]:
    if not value:
        return np.zeros(0), "float"
    parts = [_read(part) for part in value]
    shapes = {part.shape for part, _ in parts}
    if len(shapes) > 1:
        told = " and ".join(str(shape) for shape in sorted(shapes)[:2])
        raise NotNumbers(f"{type(value).__name__} of parts of shapes {told}")
    names = {name for _, name in parts}
    stacked = np.stack([part for part, _ in parts])
    return stacked, names.pop() if len(names) == 1 else stacked.dtype.name
