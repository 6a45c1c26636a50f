"""Does the one line hold: weights that sum to 1, an average that stays among the values, and torch's own numbers?

Nothing here looks inside the package's attention. Its weights are its output for V = identity; whether an output lies
in the convex hull of the values is asked direction by direction: along no direction may it lie beyond all of them.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.api import attention
from attnbook.measure import experiment, measure
from attnbook.reference import three_lines


@experiment
def run(
    seed: int = 0, repeats: int = 40, t_q: int = 61, t_kv: int = 67, head_dim: int = 64, directions: int = 500
) -> dict[str, Any]:
    """Normal q, k, v; scores as they come, ten times as large, and a tenth as large, in turn."""
    generator = torch.Generator().manual_seed(seed)
    sums, beyond, torch32, torch64, positive = [], [], [], [], []
    full: dict[str, list[float]] = {"reference": [], "tiled": []}
    for repeat in range(repeats):
        q = torch.randn(t_q, head_dim, generator=generator) * (1.0, 10.0, 0.1)[repeat % 3]
        k, v = (torch.randn(t_kv, d, generator=generator) for d in (head_dim, 3))
        weight = three_lines.attention(q, k, torch.eye(t_kv))
        sums.append(float((weight.sum(-1) - 1).abs().max()))
        out = three_lines.attention(q, k, v)
        if repeat % 3 == 0:  # scores as they come: larger ones magnify the rounding of q · k, and weights underflow
            positive.append(bool((weight > 0).all()))
            torch32.append(_difference(out, _torch(q, k, v)))
        beyond.append(_beyond(out, v, torch.randn(directions, 3, generator=generator)))
        q, k, v = q.double(), k.double(), v.double()
        torch64.append(_difference(three_lines.attention(q, k, v), _torch(q, k, v)))
        for impl, errors in full.items():
            ours = attention(q[None, None], k[None, None], v[None, None], impl=impl)[0, 0]
            errors.append(_difference(ours, _torch(q, k, v)))
    measure("oneline.rows", repeats * t_q)
    _largest("oneline.row_sum_error", sums)
    measure("oneline.all_positive", all(positive))
    _largest("oneline.beyond_hull", beyond)
    _largest("oneline.torch_error32", torch32)
    _largest("oneline.torch_error64", torch64)
    for impl, errors in full.items():
        _largest(f"oneline.{impl}_error64", errors)
    return _compass()


def _torch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]


def _difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max())


def _beyond(out: Tensor, v: Tensor, directions: Tensor) -> float:
    """How far some output lies beyond all values along some direction; not above rounding if it is in their hull."""
    directions = directions / directions.norm(dim=-1, keepdim=True)
    return max(0.0, float(((out @ directions.mT) - (v @ directions.mT).amax(0)).max()))


def _largest(id: str, samples: list[float]) -> None:
    # The spread of one draw's error is more than that of the largest of many: the careful side.
    measure(id, max(samples), spread=statistics.stdev(samples))


def _compass() -> dict[str, Any]:
    """Six keys round a circle, queries that point at some of them: weights that can be understood by looking."""

    def point(turn: float, length: float) -> list[float]:
        return [length * math.cos(2 * math.pi * turn), length * math.sin(2 * math.pi * turn)]

    keys = 6
    k = torch.tensor([point(j / keys, 2.0) for j in range(keys)])
    q = torch.tensor([point(0, 2.0), point(1 / 6, 1.0), point(2.5 / 6, 2.0), [0.0, 0.0]])
    v = torch.tensor([[1.0], [3.0], [5.0], [4.0], [2.0], [0.0]])
    weight, out = three_lines.attention(q, k, torch.eye(keys)), three_lines.attention(q, k, v)
    measure("oneline.compass_top", weight[0, 0])
    measure("oneline.compass_tie", abs(weight[2, 2] - weight[2, 3]) < 1e-6)
    measure("oneline.compass_mean_error", abs(out[3, 0] - v.mean()))
    return {"q": q, "k": k, "v": v, "weight": weight, "out": out}
