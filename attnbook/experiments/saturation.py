"""How much of a row's weight does its largest score take, with and without the division by √d?

The row's Jacobian ∂weight/∂score is measured beside it: it says how much the weights still answer to the scores.
Weights are read from `attention` by giving it the identity matrix as values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention

SATURATED = 0.99
"""A row is called saturated when one key has more weight than this."""


@experiment
def run(
    sequences: tuple[tuple[int, int], ...] = ((16, 256), (128, 128), (1024, 32)),
    dims: tuple[int, ...] = (16, 64, 256, 1024),
    queries: int = 32,
    seed: int = 3,
) -> Any:
    """Unit-normal queries and keys, for every length d; `sequences` pairs a number of keys n with how many to draw.

    Data: `largest` and `jacobian` map (n, d, divided) to one number a row, (count, queries).
    """
    generator = torch.Generator().manual_seed(seed)
    largest, jacobian = {}, {}
    for n, count in sequences:
        for d in dims:
            q = torch.randn(count, 1, queries, d, generator=generator)
            k = torch.randn(count, 1, n, d, generator=generator)
            for divided in (False, True):
                weight = weights(q, k, divided)
                largest[n, d, divided] = weight.amax(-1)
                jacobian[n, d, divided] = jacobian_norm(weight)
                _measure_rows(f"{'divided' if divided else 'plain'}_n{n}_d{d}", weight)
    for d in dims:
        few = sequences[0][0], d, False
        _measure_two_kinds(d, largest[few], jacobian[few])
    _measure_statements(largest, jacobian)
    return {"largest": largest, "jacobian": jacobian}


def weights(q: Tensor, k: Tensor, divided: bool) -> Tensor:
    """The weights of attention itself: q (b, 1, t, d), k (b, 1, n, d) -> (b, t, n) in float64."""
    one_hot = torch.eye(k.shape[2]).expand(k.shape[0], 1, -1, -1)  # averaging the unit vectors returns the weights
    weight: Tensor = attention(q, k, one_hot, scale=None if divided else 1.0)
    return weight[:, 0].double()


def jacobian_norm(weight: Tensor) -> Tensor:
    """The Frobenius norm of diag(w) − w wᵀ, the Jacobian of softmax, without building the matrix. (..., n) -> (...)."""
    two, three = (weight**2).sum(-1), (weight**3).sum(-1)
    return (two - 2 * three + two**2).clamp_min(0).sqrt()  # rounding can leave −1e-17 where a row is saturated


def _measure_rows(name: str, weight: Tensor) -> None:
    top, norm = weight.amax(-1), jacobian_norm(weight)
    measure_mean(f"scaling.max_weight_{name}", top.mean(-1), quote=False)
    measure_mean(f"scaling.saturated_{name}", (top > SATURATED).double().mean(-1), unit="ratio", quote=False)
    measure_mean(f"scaling.jacobian_{name}", norm.mean(-1), quote=False)


def _measure_two_kinds(d: int, top: Tensor, norm: Tensor) -> None:
    """Without the division: the Jacobian of the rows that are saturated, and of the others."""
    for kind, rows in (("stuck", top > SATURATED), ("free", top <= SATURATED)):
        spread = norm[rows].std() / rows.sum() ** 0.5
        measure(f"scaling.jacobian_{kind}_d{d}", norm[rows].mean(), spread=float(spread), quote=False)


def _measure_statements(largest: dict[Any, Tensor], jacobian: dict[Any, Tensor]) -> None:
    """What holds for every row, whatever n and d, and what distinguishes the two kinds of rows without division."""
    most = max(float(top.max()) for (*_, divided), top in largest.items() if divided)
    measure("scaling.no_divided_row_saturates", most <= SATURATED)
    bound = all(bool((jacobian[key] <= 2 * (1 - top) + 1e-6).all()) for key, top in largest.items())
    measure("scaling.jacobian_below_twice_the_rest", bound)
