"""What the experiments on mixtures of experts share: random experts, routing from given logits, dependence counted.

No experiment itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnbook.reference.router import route
from attnbook.shapes_moe import RoutingInfo


def experts(generator: torch.Generator, e: int, d: int, f: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random w_gate, w_up (e, d, f) and w_down (e, f, d) in float64, sized so that outputs are near 1."""

    def normal(*shape: int) -> Tensor:
        drawn: Tensor = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return drawn / math.sqrt(shape[-2])

    return normal(e, d, f), normal(e, d, f), normal(e, f, d)


def routed(logits: Tensor, top_k: int, **options: object) -> RoutingInfo:
    """The reference's router on given logits (t, e): with the identity for weights, a token is its own logits."""
    return route(logits, torch.eye(logits.shape[1], dtype=logits.dtype), top_k=top_k, **options)  # type: ignore[arg-type]


def explained(choice: Tensor, by: Tensor) -> float:
    """How much of a choice a property tells: their mutual information over the choice's entropy, 0 to 1.

    choice (n,) and by (n,) whole numbers from 0. A choice that never varies counts as 0. A little above 0 is chance: a
    finite sample is never quite independent.
    """
    joint = torch.zeros(int(choice.max()) + 1, int(by.max()) + 1, dtype=torch.float64)
    joint.index_put_((choice, by), torch.ones((), dtype=joint.dtype), accumulate=True)
    joint /= joint.sum()
    apart = entropy(joint.sum(0)) + entropy(joint.sum(1)) - entropy(joint.flatten())
    whole = entropy(joint.sum(1))
    return float(apart / whole) if whole > 0 else 0.0


def entropy(shares: Tensor) -> Tensor:
    """−Σ p ln p, in nats: shares (n,) that sum to 1 -> ()."""
    each: Tensor = torch.special.entr(shares)
    return each.sum()


def busiest(loads: Tensor) -> float:
    """How many times the mean load the busiest expert has; loads (e,)."""
    return float(loads.max() / loads.double().mean())
