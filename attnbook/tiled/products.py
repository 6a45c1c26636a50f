"""Products that keep what is not finite where it may be seen.

A weight of 0 hides a key, but 0 · NaN is NaN: in a product of matrices a NaN or an inf in one row of V would reach
every query of its tile, also those that may not see it. A padded cache may hold such rows. So where a result is not
finite it is calculated once more, with `product` told which pairs may be seen.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor, seen: Tensor | None = None) -> Tensor:
    """The product a b (lanes, m, d); with `seen`, what is not finite in b reaches only the rows that see it.

    a (lanes, m, n) and 0 where not seen, b (lanes, n, d), seen (lanes, m, n) booleans.
    """
    if seen is None:
        return torch.bmm(a, b)
    total = torch.bmm(a, torch.where(b.isfinite(), b, 0.0))
    special = ((b == math.inf, math.inf), (b == -math.inf, -math.inf), (b.isnan(), math.nan))
    for where, value in special:
        if bool(where.any()):
            reached = torch.bmm(seen.to(a.dtype), where.to(a.dtype)) > 0
            total += torch.where(reached, value, 0.0)  # inf and −inf make NaN, as they should
    return total


def all_finite(*tensors: Tensor | None) -> bool:
    """Is every number of every tensor finite? The sum tells it in one pass, unless it overflows by itself."""
    return all(
        bool(x.sum(dtype=_sum_dtype(x)).isfinite()) or bool(x.isfinite().all()) for x in tensors if x is not None
    )


def _sum_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
