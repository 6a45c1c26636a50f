"""What does the balance loss say, which normalisation has it, and what do it and a bias do to a crowded expert?

Three routings whose loss can be foreseen: every expert gets the same, a few get everything, and a router that knows
nothing at all. Then a router that sends too much to some experts is mended in two ways: by the gradient of the loss,
and by a bias that only the choice sees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._experts import busiest, routed
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference.balance import update_selection_bias
from attnbook.reference.router import route
from attnbook.shapes_moe import RoutingInfo


@experiment
def run(
    n_experts: int = 8, top_k: int = 2, steps: int = 100, t: int = 256, rate: float = 0.015, repeats: int = 8,
    seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Data: `crowded` maps "loss" and "bias" to the busiest expert's load over the mean, (steps + 1, repeats)."""
    _measure_values(n_experts, top_k)
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, list[Tensor]] = {"loss": [], "bias": []}
    error = 0.0
    for _ in range(repeats):
        draw, router = crowd(generator, n_experts, t)
        by_loss, _ = mended_by_loss(draw, router, top_k, steps)
        by_bias, bias = mended_by_bias(draw, router, top_k, steps, rate)
        x = draw()
        chosen = route(x, router, top_k=top_k, scoring="sigmoid", renormalize=False, selection_bias=bias)
        score = torch.sigmoid(x @ router.T).gather(1, chosen.experts)
        error = max(error, float((chosen.weights - score).abs().max()))
        found["loss"].append(by_loss)
        found["bias"].append(by_bias)
    crowded = {name: torch.stack(runs, 1) for name, runs in found.items()}
    for name, ratio in crowded.items():
        measure_mean(f"experts.crowded_before_{name}", ratio[0], unit="ratio")
        measure_mean(f"experts.crowded_after_{name}", ratio[-20:].mean(0), unit="ratio")
    measure("experts.bias_keeps_weights_error", error)
    return {"crowded": crowded}


def _measure_values(e: int, top_k: int) -> None:
    """Losses that can be foreseen, in Switch's form and with loads counted for each token."""
    place = torch.arange(8 * e)[:, None]
    turns = (place + torch.arange(top_k)) % e  # token i goes to experts i, i + 1, …
    rotating = 40 * torch.zeros(len(place), e, dtype=torch.float64).scatter(1, turns, 1.0)
    few = torch.zeros_like(rotating)
    few[:, :top_k] = 40
    for name, logits in {"uniform": rotating, "few": few, "flat": torch.zeros_like(rotating)}.items():
        info = routed(logits, top_k)
        measure(f"experts.loss_{name}", info.aux_loss)
        if name == "flat":
            measure("experts.flat_busiest", info.loads.max() / len(place), unit="ratio")
        else:
            measure(f"experts.loss_per_token_{name}", per_token(logits, info))
    # A bias so large that the lowest scores are chosen.
    logits = torch.linspace(0, 1, e, dtype=torch.float64).repeat(8, 1)
    against = routed(logits, top_k, selection_bias=-10 * logits[0])
    measure("experts.loss_backwards", against.aux_loss)


def per_token(logits: Tensor, info: RoutingInfo) -> Tensor:
    """The other convention: an expert's load is its share of the t tokens, so that all loads sum to k; ()."""
    t, e = logits.shape
    loss: Tensor = e * (info.loads / t * torch.softmax(logits, -1).mean(0)).sum()
    return loss


def crowd(generator: torch.Generator, e: int, t: int, d: int = 16) -> tuple[Any, Tensor]:
    """Tokens that all have something in common, and a router (e, d) whose experts like it to different degrees.

    The first is a function that draws t tokens (t, d).
    """
    common: Tensor = torch.randn(d, generator=generator, dtype=torch.float64)
    router = torch.randn(e, d, generator=generator, dtype=torch.float64) * d**-0.5

    def draw() -> Tensor:
        own: Tensor = torch.randn(t, d, generator=generator, dtype=torch.float64)
        return common + own

    return draw, router


def mended_by_loss(draw: Any, router: Tensor, top_k: int, steps: int) -> tuple[Tensor, Tensor]:
    """Gradient descent on the balance loss alone -> the busiest load before each step and after (steps + 1,), router.

    There is no task: how far the loss can get when nothing pulls the other way.
    """
    router = router.clone().requires_grad_()
    seen = []
    for _ in range(steps):
        info = route(draw(), router, top_k=top_k)
        (gradient,) = torch.autograd.grad(info.aux_loss, router)
        router = (router - 0.05 * gradient).detach().requires_grad_()
        seen.append(busiest(info.loads))
    seen.append(busiest(route(draw(), router, top_k=top_k).loads))
    return torch.tensor(seen), router.detach()


def mended_by_bias(draw: Any, router: Tensor, top_k: int, steps: int, rate: float) -> tuple[Tensor, Tensor]:
    """The router stays as it is and a bias moves -> the busiest load before each step and after (steps + 1,), bias."""
    bias = torch.zeros(len(router), dtype=router.dtype)
    seen = []
    for step in range(steps + 1):
        loads = route(draw(), router, top_k=top_k, scoring="sigmoid", selection_bias=bias).loads
        seen.append(busiest(loads))
        if step < steps:
            bias = update_selection_bias(bias, loads, rate=rate)
    return torch.tensor(seen), bias
