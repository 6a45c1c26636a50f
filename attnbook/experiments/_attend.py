"""The package's attention as the mask experiments call it, and its weights read off its output: V is the identity."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
    """A V that makes attention return its weights: (b, h, t_kv, t_kv)."""
    t_kv = k.shape[-2]
    return torch.eye(t_kv, dtype=k.dtype).expand(*k.shape[:-2], t_kv, t_kv)
