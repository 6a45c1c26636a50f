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

    Data: `largest` and `jacobian` map (n, d, divided) to one number a row, (count, queries); `deciles` maps
    (n, divided) to the ends of the lowest tenth, half and nine tenths of the largest weights, (3, dims).
    """
    generator = torch.Generator().manual_seed(seed)
    largest, jacobian = {}, {}
    deciles: dict[tuple[int, bool], list[list[float]]] = {}
    for n, count in sequences:
        for d in dims:
            q = torch.randn(count, 1, queries, d, generator=generator)
            k = torch.randn(count, 1, n, d, generator=generator)
            for divided in (False, True):
                weight = weights(q, k, divided)
                largest[n, d, divided] = weight.amax(-1)
                jacobian[n, d, divided] = jacobian_norm(weight)
                three = _measure_rows(f"{'divided' if divided else 'plain'}_n{n}_d{d}", weight)
                deciles.setdefault((n, divided), []).append(three)
    stuck = [_measure_two_kinds(d, *(rows[sequences[0][0], d, False] for rows in (largest, jacobian))) for d in dims]
    measure("scaling.jacobian_stuck_largest", max(stuck))
    measure("scaling.saturation_limit", SATURATED, kind="parameter")
    _measure_statements(largest, jacobian)
    _measure_reversal(jacobian, *((n, dims[1]) for n, _ in sequences[:2]))
    ends = {key: list(zip(*rows, strict=True)) for key, rows in deciles.items()}
    return {"largest": largest, "jacobian": jacobian, "deciles": ends}


def weights(q: Tensor, k: Tensor, divided: bool) -> Tensor:
    """The weights of attention itself: q (b, 1, t, d), k (b, 1, n, d) -> (b, t, n) in float64."""
    one_hot = torch.eye(k.shape[2]).expand(k.shape[0], 1, -1, -1)  # averaging the unit vectors returns the weights
    weight: Tensor = attention(q, k, one_hot, scale=None if divided else 1.0)
    return weight[:, 0].double()


def jacobian_norm(weight: Tensor) -> Tensor:
    """The Frobenius norm of diag(w) − w wᵀ, the Jacobian of softmax, without building the matrix. (..., n) -> (...)."""
    two, three = (weight**2).sum(-1), (weight**3).sum(-1)
    return (two - 2 * three + two**2).clamp_min(0).sqrt()  # rounding can leave −1e-17 where a row is saturated


def _measure_rows(name: str, weight: Tensor) -> list[float]:
    top, norm = weight.amax(-1), jacobian_norm(weight)
    measure_mean(f"scaling.max_weight_{name}", top.mean(-1), quote=False)
    measure_mean(f"scaling.saturated_{name}", (top > SATURATED).double().mean(-1), unit="ratio", quote=False)
    measure_mean(f"scaling.jacobian_{name}", norm.mean(-1), quote=False)
    return [_measure_quantile(name, top, percent) for percent in (10, 50, 90)]


def _measure_quantile(name: str, top: Tensor, percent: int, groups: int = 8) -> float:
    """Where the lowest `percent` of the rows end; its spread from how far that moves between groups of sequences."""
    every = torch.stack([group.flatten().quantile(percent / 100) for group in top.chunk(groups)])
    whole = top.flatten().quantile(percent / 100)
    measure(f"scaling.max_weight_p{percent}_{name}", whole, spread=float(every.std()) / groups**0.5, quote=False)
    return float(whole)


def _measure_two_kinds(d: int, top: Tensor, norm: Tensor) -> float:
    """Without the division: the Jacobian of the rows that are not saturated; returns the mean of the saturated ones."""
    free = norm[top <= SATURATED]
    measure(f"scaling.jacobian_free_d{d}", free.mean(), spread=float(free.std()) / len(free) ** 0.5, quote=False)
    return float(norm[top > SATURATED].mean())


def _measure_statements(largest: dict[Any, Tensor], jacobian: dict[Any, Tensor]) -> None:
    """What holds for every row, whatever n and d, and what distinguishes the two kinds of rows without division."""
    most = max(float(top.max()) for (*_, divided), top in largest.items() if divided)
    measure("scaling.no_divided_row_saturates", most <= SATURATED)
    bound = all(bool((jacobian[key] <= 2 * (1 - top) + 1e-6).all()) for key, top in largest.items())
    measure("scaling.jacobian_below_twice_the_rest", bound)


def _measure_reversal(jacobian: dict[Any, Tensor], few: tuple[int, int], many: tuple[int, int]) -> None:
    """Is the mean norm larger with the division where keys are few, and larger without it where they are many?"""
    gain = {size: float(jacobian[*size, True].mean() - jacobian[*size, False].mean()) for size in (few, many)}
    measure("scaling.jacobian_reverses", gain[few] > 0 > gain[many])
