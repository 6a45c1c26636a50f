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
    measure("scaling.saturation_limit", SATURATED, kind="parameter")
    _measure_every_row(largest, jacobian)
    _measure_means({key: float(norm.mean()) for key, norm in jacobian.items()}, [n for n, _ in sequences], dims)
    few = sequences[0][0]
    _measure_two_kinds({d: (largest[few, d, False], jacobian[few, d, False]) for d in dims})
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


def _measure_every_row(largest: dict[Any, Tensor], jacobian: dict[Any, Tensor]) -> None:
    most = max(float(top.max()) for (*_, divided), top in largest.items() if divided)
    measure("scaling.no_divided_row_saturates", most <= SATURATED)
    bound = all(bool((jacobian[key] <= 2 * (1 - top) + 1e-6).all()) for key, top in largest.items())
    measure("scaling.jacobian_below_twice_the_rest", bound)


def _measure_means(mean: dict[Any, float], keys: list[int], dims: tuple[int, ...]) -> None:
    """How the mean norm depends on d, for each n, and on n, for the second d."""
    plain, divided = ([[mean[n, d, kind] for d in dims] for n in keys] for kind in (False, True))
    few_and_many = plain[:2]  # with 1024 keys and d = 16, even rows that are not divided are nearly uniform
    measure("scaling.jacobian_falls_with_d", all(row == sorted(row, reverse=True) for row in few_and_many))
    measure("scaling.jacobian_moves_divided", max(max(row) / min(row) for row in divided) - 1, unit="ratio")
    few, many = (mean[n, dims[1], True] - mean[n, dims[1], False] for n in keys[:2])
    measure("scaling.jacobian_reverses", few > 0 > many)


def _measure_two_kinds(rows: dict[int, tuple[Tensor, Tensor]]) -> None:
    """Without the division: rows that are saturated and rows that are not; `rows` maps d to largest weights, norms."""
    free, stuck, share = {}, {}, {}
    for d, (top, norm) in rows.items():
        own = norm[top <= SATURATED]
        measure(f"scaling.jacobian_free_d{d}", own.mean(), spread=float(own.std()) / len(own) ** 0.5, quote=False)
        free[d], stuck[d] = float(own.mean()), float(norm[top > SATURATED].mean())
        share[d] = float((top > SATURATED).double().mean())
    measure("scaling.jacobian_stuck_largest", max(stuck.values()))
    # From the shortest to the longest d: how far would the mean fall if only the share of saturated rows had changed,
    # and how far if only the norm of the other rows had?
    short, long = min(rows), max(rows)
    by_share, by_norm = free[short] * (share[long] - share[short]), (free[short] - free[long]) * (1 - share[short])
    measure("scaling.share_matters_more", by_share > by_norm)
