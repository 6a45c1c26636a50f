"""Is softmax in one pass over blocks the same softmax, and do two halves of attention merge into the whole?

Two numbers a row are carried from block to block: the largest score so far, and the sum of exp(score − largest).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention, merge, online_average, online_softmax, softmax


@experiment
def run(rows: int = 40, n: int = 1024, blocks: tuple[int, ...] = (1, 7, 64, 1000), seed: int = 3) -> Any:
    """Rows of n normal scores with standard deviation 8, in float64, so that only the method can differ.

    Data: `maximum` (rows, n), the running maximum of every row; `score` (rows, n).
    """
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(rows, n, generator=generator, dtype=torch.float64) * 8
    v = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    exact = softmax(score)
    measure("softmax.online_error", max(largest(online_softmax(score, block=b) - exact) for b in blocks))
    average = [online_average(score, v, block=b)[0] for b in blocks if b > 1]
    measure("softmax.online_average_error", max(largest(out - exact @ v) for out in average))
    _measure_halves(generator)
    _measure_order(score, v)
    many = torch.randn(10 * rows, n, generator=generator, dtype=torch.float64)
    measure_mean("softmax.maximum_changes", 1 + (many.cummax(-1).values.diff(dim=-1) > 0).double().sum(-1))
    measure("softmax.harmonic_sum", sum(1 / i for i in range(1, n + 1)))
    return {"maximum": score.cummax(-1).values, "score": score}


def largest(difference: Tensor) -> float:
    """The largest absolute value."""
    return float(difference.abs().max())


def _measure_halves(generator: torch.Generator) -> None:
    """Attention over the first and over the last keys alone, merged, against attention over all."""
    q, k, v = (torch.randn(7, 2, t, 5, generator=generator, dtype=torch.float64) for t in (3, 13, 13))
    whole, lse = attention(q, k, v, return_lse=True)
    first = attention(q, k[:, :, :6], v[:, :, :6], return_lse=True)
    second = attention(q, k[:, :, 6:], v[:, :, 6:], return_lse=True)
    out, merged = merge(*first, *second)
    measure("softmax.merge_error", max(largest(out - whole), largest(merged - lse)))
    measure("softmax.average_of_halves_error", largest((first[0] + second[0]) / 2 - whole))
    none = attention(q, k[:, :, :0], v[:, :, :0], return_lse=True)  # no key at all: (0, −inf)
    measure("softmax.merge_with_nothing_changes_nothing", bool(torch.equal(merge(*first, *none)[0], first[0])))


def _measure_order(score: Tensor, v: Tensor) -> None:
    """Which part of the keys comes first makes no difference; a part without any visible key is no obstacle."""
    turned = online_average(score.flip(-1), v.flip(0), block=64)[0]
    measure("softmax.order_error", largest(turned - online_average(score, v, block=64)[0]))
    hidden = score.clone()
    hidden[:, :64] = -torch.inf
    seen = online_softmax(hidden, block=64)
    close = largest(seen - softmax(hidden)) < 1e-14
    measure("softmax.hidden_block_is_no_obstacle", bool(seen.isfinite().all()) and close)
