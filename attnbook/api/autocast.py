"""Autocast: how it meets the door and the operators.

Inside `torch.autocast`, q, k and v are cast to its dtype, as torch does before its own attention; mask, slopes and
sinks stay as they are. And behind the door autocast is off: it would take the products that accumulate in float32 to
half precision.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("attnbook", "FRAGMENT")  # type: ignore[no-untyped-call]
KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


def cast(device_type: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Floats but float64 in autocast's dtype, where autocast is on; the same tensors where it is off."""
    if not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(_cast(x, dtype) for x in tensors)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64 else x


def off(device_type: str) -> AbstractContextManager[Any]:
    """A context without autocast, for what runs behind the door."""
    if not torch.is_autocast_enabled(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)


def register(name: str, n_cast: int) -> None:
    """Tell autocast about the operator `attnbook::name`: cast its first `n_cast` arguments, and be off inside."""
    for device_type, key in KEYS.items():
        LIBRARY.impl(name, _kernel(name, device_type, n_cast), key)  # type: ignore[no-untyped-call]


def _kernel(name: str, device_type: str, n_cast: int) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        args = (*cast(device_type, *args[:n_cast]), *args[n_cast:])
        with torch.autocast(device_type, enabled=False):
            return getattr(torch.ops.attnbook, name)(*args)

    return kernel
