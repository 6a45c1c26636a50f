"""Which mistakes in the three lines raise no error? Softmax over the wrong axis, and a forgotten transpose.

The first never changes a shape. The second needs as many keys as components: sizes that a first test likes to have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import softmax, three_lines


@experiment
def run(seed: int = 0, repeats: int = 2000, tokens: int = 16) -> dict[str, Any]:
    """Square q, k, v of normal numbers, `repeats` times: right, softmax over queries, and q k instead of q kᵀ."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, repeats, tokens, tokens, generator=generator)
    out = three_lines.attention(q, k, v)

    sideways = softmax(q @ k.mT / tokens**0.5, axis=-2)
    measure("oneline.wrong_axis_columns", torch.allclose(sideways.sum(-2), torch.ones(repeats, tokens)))
    sums = sideways.sum(-1)
    measure_mean("oneline.wrong_axis_smallest_sum", sums.amin(-1).tolist())
    measure_mean("oneline.wrong_axis_largest_sum", sums.amax(-1).tolist())
    measure("oneline.wrong_axis_shape", (sideways @ v).shape == out.shape and _same_shape(q[0], k[0, :-3], v[0, :-3]))
    found = [_rows_sum_to_one(fn, seed) for fn in (three_lines.attention, _sideways)]
    measure("oneline.ones_find_wrong_axis", found == [True, False])

    flat = three_lines.attention(q, k.mT, v)
    measure("oneline.no_transpose_shape", flat.shape == out.shape)
    change = (flat - out).norm(dim=(1, 2)) / out.norm(dim=(1, 2))
    measure_mean("oneline.no_transpose_change", change.tolist(), unit="ratio")

    # With other sizes the second mistake is caught by the matrix product itself.
    measure("oneline.no_transpose_caught", _raises(q[0], k[0, :-3], v[0, :-3]))
    return {"sums": sums[0], "right_sums": softmax(q[0] @ k[0].mT / tokens**0.5).sum(-1)}


def _sideways(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The three lines with softmax over the queries."""
    out: torch.Tensor = softmax(q @ k.mT / q.shape[-1] ** 0.5, axis=-2) @ v
    return out


def _same_shape(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """With fewer keys than queries too?"""
    return bool(_sideways(q, k, v).shape == three_lines.attention(q, k, v).shape)


def _rows_sum_to_one(fn: Callable[..., Any], seed: int = 0) -> bool:
    """The answer to the chapter's last exercise: for values of 1, the output is the sum of a row of weights."""
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(t, 7, generator=generator) for t in (5, 11))
    return torch.allclose(fn(q, k, torch.ones(11, 3)), torch.ones(5, 3))


def _raises(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    try:
        three_lines.attention(q, k.mT, v)
    except RuntimeError:
        return True
    return False
