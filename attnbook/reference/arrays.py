"""The one place that knows that NumPy and torch are two libraries.

The rest of this room is written once, against the array API standard (data-apis.org/array-api), which
`array_api_compat` provides for both. What the standard lacks and attention needs is here.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import array_api_compat

from attnbook.errors import DTypeError
from attnbook.shapes import check_shaped

Array: TypeAlias = Any
"""A NumPy array or a torch tensor. (Neither library is imported to name its type.)"""


def namespace(*arrays: Array) -> Any:
    """The functions (`exp`, `sum`, `where` …) of the library that the arrays come from; None is skipped.

    Raises TypeError where the arrays come from two libraries, or something is no array.
    """
    given = [x for x in arrays if x is not None]
    for x in given:
        check_shaped("an argument", x)
    if given and all(_of_torch(x) for x in given):  # the general way has caches, of which torch.compile warns
        import array_api_compat.torch as xp

        return xp
    if not given:
        raise TypeError("there is no array: expected at least one")
    return array_api_compat.array_namespace(*given)


def _of_torch(x: Array) -> bool:
    """Is x a torch tensor? Where torch was never imported nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def working_dtype(name: str, x: Array) -> Any:
    """The dtype to calculate in: float64 for float64, float32 for every shorter float.

    Raises DTypeError for anything that is not a real floating-point array.
    """
    xp = namespace(x)
    check_floating(name, x)
    return xp.float64 if x.dtype == xp.float64 else xp.float32


def check_floating(name: str, x: Array) -> None:
    """Raises DTypeError unless x holds real floating-point numbers."""
    if not is_floating(x):
        raise DTypeError(f"{name} has dtype {x.dtype}: expected a floating-point dtype")


def check_alike(name: str, x: Array, q: Array) -> None:
    """Raises TypeError unless x comes from the library of q, ValueError unless it lies on the device of q."""
    check_shaped(name, x)
    of_x, of_q = (namespace(array).__name__.rpartition(".")[2] for array in (x, q))
    if of_x != of_q:
        raise TypeError(f"{name} comes from {of_x} but q from {of_q}: they must come from one library")
    if device(x) != device(q):
        raise ValueError(f"{name} is on device {device(x)} but q on {device(q)}: they must be on one device")


def is_floating(x: Array) -> bool:
    """Does x hold real floating-point numbers of at most 64 bits (bfloat16 included, NumPy's longdouble not)?"""
    return bool(namespace(x).isdtype(x.dtype, "real floating")) and x.dtype.itemsize <= 8


def lowest(x: Array) -> float:
    """The most negative finite number of x's dtype."""
    return float(namespace(x).finfo(x.dtype).min)


def device(x: Array) -> Any:
    """Where x lies, in its own library's words."""
    return x.device if _of_torch(x) else array_api_compat.device(x)
