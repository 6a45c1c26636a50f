"""What the mask experiments share: our attention, its weights read off its output, the worst of many errors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.measure import Measurement, measure
from attnbook.reference import attention


def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """`attnbook.reference.attention`, typed for tensors: q (b, h, t_q, d), k, v (b, h, t_kv, d) -> (b, h, t_q, d)."""
    out = attention(q, k, v, **options)
    assert isinstance(out, Tensor)
    return out


def weights(q: Tensor, k: Tensor, **options: Any) -> Tensor:
    """The attention weights, (b, h, t_q, t_kv), for q (b, h, t_q, d), k (b, h, t_kv, d)."""
    return attend(q, k, identity(k), **options)


def identity(k: Tensor) -> Tensor:
    """A V that makes attention return its weights, the identity matrix: (b, h, t_kv, t_kv)."""
    t_kv = k.shape[-2]
    return torch.eye(t_kv, dtype=k.dtype).expand(*k.shape[:-2], t_kv, t_kv)


def measure_worst(id: str, errors: Tensor) -> Measurement:
    """Measure the largest of the errors of repeated draws, each at least 0.

    The spread is that of one draw, which is more than that of the largest of many: the careful side. An error that is
    NaN or infinite has no spread, and stays to be refused by whoever quotes it.
    """
    spread = float(errors.double().std())
    return measure(id, errors.max(), spread=spread if math.isfinite(spread) else None)
