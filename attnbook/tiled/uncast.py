"""Autocast stays outside the tiles: it would take to half precision the products that accumulate in float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def uncast(x: Any) -> AbstractContextManager[Any]:
    """A context without autocast on the device of x; one that does nothing where there is no autocast."""
    if isinstance(x, Tensor) and not x.is_meta and torch.is_autocast_enabled(x.device.type):
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()
