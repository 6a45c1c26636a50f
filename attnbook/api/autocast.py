"""Autocast: how it meets the door and the operators.

Inside `torch.autocast`, q, k and v are cast to its dtype, as torch does before its own attention; mask, slopes and
sinks stay as they are. And behind the door autocast is off: it would take the products that accumulate in float32 to
half precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("attnbook", "FRAGMENT")  # type: ignore[no-untyped-call]
KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


def cast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Floats but float64 in autocast's dtype, where autocast is on; the same tensors where it is off."""
    if not is_on(q):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    return _cast(q, dtype), _cast(k, dtype), _cast(v, dtype)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64 else x


def is_on(q: Tensor) -> bool:
    """Is autocast on where q lies? Meta tensors lie nowhere."""
    return not q.is_meta and torch.is_autocast_enabled(q.device.type)


def register(name: str, *, casts: bool) -> None:
    """Tell autocast about the operator `attnbook::name`: whether q, k, v are cast; inside it, autocast is off."""
    for device_type, key in KEYS.items():
        LIBRARY.impl(name, _kernel(name, device_type, casts), key)  # type: ignore[no-untyped-call]


def _kernel(name: str, device_type: str, casts: bool) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        args = (*cast(*args[:3]), *args[3:]) if casts else args
        with torch.autocast(device_type, enabled=False):
            return getattr(torch.ops.attnbook, name)(*args)

    return kernel
