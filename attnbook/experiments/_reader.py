"""A reader's function in an experiment: called with NumPy arrays, or with tensors where it is written with torch.

No experiment; those of the lab share it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch


def called(function: Callable[..., Any], beside: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The function, for NumPy arrays and numbers: tensors are made of arrays, and arrays of tensors, where needed.

    beside: another function of the reader's. Where that one uses torch, this one gets tensors, too: what is done with
    methods of tensors alone does not name torch.
    """
    if not uses_torch(function) and (beside is None or _of_package(function) or not uses_torch(beside)):
        return function

    def with_tensors(*arguments: Any) -> Any:
        given = (torch.as_tensor(a) if hasattr(a, "__array__") else a for a in arguments)
        out = function(*given)
        return out.detach().numpy() if isinstance(out, torch.Tensor) else out

    return with_tensors


def uses_torch(function: Callable[..., Any], seen: frozenset[int] = frozenset()) -> bool:
    """Does the function name torch or something of it, itself or in a function of its file that it names?

    What takes NumPy arrays as well as tensors, such as the package's own functions, counts as NumPy's.
    """
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if code is None or id(code) in seen or _of_package(function):
        return False
    named = [known[name] for name in code.co_names if name in known]
    if "torch" in code.co_names or any(_of_torch(value) for value in named):
        return True
    return any(uses_torch(f, seen | {id(code)}) for f in named if isinstance(f, types.FunctionType))


def _of_package(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__globals__", {}).get("__name__", "")).startswith("attnbook.")


def _of_torch(value: object) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0] == "torch"
