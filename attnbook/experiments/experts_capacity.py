"""How many tokens are dropped when every expert has a capacity, which ones, and who decides it?

Random routers, of which none prefers an expert, and crowded ones. Dropped are the tokens that come late, and what a
token gets depends on the other sequences of its batch: the package's own probe finds that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.api.moe import moe
from attnbook.experiments._experts import experts
from attnbook.experiments.experts_balance import crowd
from attnbook.measure import experiment, measure, measure_mean
from attnbook.probes import batch_dependence, causal_leak
from attnbook.reference.router import capacity, route

FACTORS = {"tight": 1.0, "usual": 1.25, "loose": 2.0}


@experiment
def run(t: int = 256, n_experts: int = 8, top_k: int = 2, repeats: int = 20, seed: int = 0) -> dict[str, Any]:
    """Data: `dropped`, the share of assignments by kind of router and factor, (repeats,) each."""
    generator = torch.Generator().manual_seed(seed)
    for name, factor in FACTORS.items():
        measure(f"experts.capacity_{name}", capacity(torch.Size((t, top_k)), n_experts, factor))
    measure("experts.capacity_rounded", capacity(torch.Size((7, 2)), 5, 1.0))
    dropped: dict[str, dict[str, Tensor]] = {"even": {}, "crowded": {}}
    for kind, shares in dropped.items():
        drawn = [_routers(generator, kind, t, n_experts) for _ in range(repeats)]
        for name, factor in FACTORS.items():
            each = torch.stack([route(x, w, top_k=top_k, capacity_factor=factor).dropped.double() for x, w in drawn])
            shares[name] = each.mean((1, 2))
            measure_mean(f"experts.dropped_{kind}_{name}", shares[name], unit="ratio")
            if (kind, name) == ("crowded", "tight"):
                quarters = each.mean(2).view(repeats, 4, -1).mean(2)
                measure("experts.dropped_early", quarters[:, 0].max(), unit="ratio")
                measure_mean("experts.dropped_late", quarters[:, 3], unit="ratio")
                measure_mean("experts.dropped_wholly", each.amin(2).mean(1), unit="ratio")
    _measure_others(generator, top_k)
    return {"dropped": dropped}


def _routers(generator: torch.Generator, kind: str, t: int, e: int) -> tuple[Tensor, Tensor]:
    """Tokens (t, d) and a router (e, d)."""
    if kind == "crowded":
        draw, router = crowd(generator, e, t)
        return draw(), router
    return torch.randn(t, e, generator=generator, dtype=torch.float64), torch.eye(e, dtype=torch.float64)


def _measure_others(generator: torch.Generator, top_k: int, b: int = 4, t: int = 24) -> None:
    """Four sequences in one call: who moves whom? And what is left of a token without experts?"""
    draw, router = crowd(generator, 8, b * t)
    x, weights = draw().view(b, t, -1), experts(generator, 8, 16, 12)

    def layer(x: Tensor, factor: float | None) -> Tensor:
        return moe(x, router, *weights, top_k=top_k, capacity_factor=factor)[0]

    measure("experts.capacity_reads_neighbours", not batch_dependence(lambda x: layer(x, 1.0), x).ok)
    measure("experts.no_capacity_passes", batch_dependence(lambda x: layer(x, None), x).ok)
    measure("experts.capacity_no_future", causal_leak(lambda x: layer(x, 1.0), x[:1]).ok)
    y, info = moe(x, router, *weights, top_k=top_k, capacity_factor=0.5)
    left_out = info.dropped.all(-1)
    measure("experts.left_out_output", y[left_out].abs().max())
