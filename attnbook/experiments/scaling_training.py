"""Does attention learn without the division by √d, and for which lengths d?

The task is looking up: a sequence holds pairs (key, value), one key is asked for, its value must be answered. The model
is one head of attention between learned linear maps and nothing else, so that nothing else can help or hinder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention

PAIRS, WORDS, WIDTH, BATCH = 8, 8, 32, 32
"""Pairs in a sequence, distinct values, length of a token's vector, sequences in a batch."""
LOOK = 10
"""The scores are looked at in every tenth step, and in the last."""


@dataclass(frozen=True)
class Trained:
    """What several models, trained side by side, left behind."""

    loss: Tensor
    """(steps, models) the loss of every step."""
    score_sd: Tensor
    """(looks, models) standard deviation of the scores that went into softmax, at every LOOK-th step and the last."""
    saturated: Tensor
    """(looks, models) share of rows in which one key has more than 0.99 of the weight."""

    @property
    def final_loss(self) -> Tensor:
        """The mean loss of each model over the last fifth of its steps, (models,)."""
        return self.loss[-len(self.loss) // 5 :].mean(0)


@experiment
def run(
    dims: tuple[int, ...] = (16, 64, 256),
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2),
    steps: int = 150,
    models: int = 4,
    seed: int = 3,
) -> Any:
    """Train `models` models for every length d and learning rate: with the division, without it, and a third way.

    The third way does not divide; the map that makes the queries starts 1/√d as large instead.
    Data: `loss` maps (way, d) to the final losses (rates, models), way one of "plain", "divided", "small".
    """
    loss = {}
    for d in dims:
        for way in ("plain", "divided", "small"):
            trained = train(d, way, torch.tensor(rates).repeat_interleave(models), steps=steps, seed=seed)
            loss[way, d] = trained.final_loss.view(len(rates), models)
            best = loss[way, d].mean(1).argmin()
            measure_mean(f"scaling.best_loss_{way}_d{d}", loss[way, d][best], quote=False)
    _measure_statements(loss, dims)
    return {"loss": loss, "chance": math.log(WORDS)}


def _measure_statements(loss: dict[tuple[str, int], Tensor], dims: tuple[int, ...]) -> None:
    best = {key: float(losses.mean(1).min()) for key, losses in loss.items()}
    plain = [best["plain", d] for d in dims]
    measure("scaling.plain_learns_too", max(plain) < math.log(WORDS))
    measure("scaling.plain_worsens_with_d", plain[-1] > plain[0])
    measure("scaling.divided_wins_at_every_d", all(best["divided", d] < best["plain", d] for d in dims))
    bolder = max(float(loss["divided", d].mean(1)[1:].max()) for d in dims)
    measure("scaling.divided_at_either_rate", bolder)
    last = dims[-1]  # where the two ways to start small differ most
    measure("scaling.plain_over_divided", best["plain", last] / best["divided", last], unit="ratio")
    bold_small, bold_divided = (float(loss[way, last][-1].mean()) for way in ("small", "divided"))
    measure("scaling.small_over_divided_bold", bold_small / bold_divided, unit="ratio")


def train(d: int, way: str, rates: Tensor, *, steps: int, seed: int) -> Trained:
    """Train one model for each learning rate, side by side, each with random maps and random codes of its own."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(len(rates), *shape, generator=generator)

    codes = normal(2 * PAIRS, WIDTH), normal(WORDS, WIDTH)  # the vectors that stand for keys and for values
    to_q, to_k = (normal(WIDTH, d) / WIDTH**0.5 for _ in range(2))  # q and k start with variance 1
    to_v, to_word = normal(WIDTH, WIDTH) / WIDTH**0.5, normal(WIDTH, WORDS) / WIDTH**0.5
    if way == "small":
        to_q = to_q / d**0.5
    optimiser = Adam([to_q, to_k, to_v, to_word], rates)
    losses: list[Tensor] = []
    looks: list[tuple[Tensor, Tensor]] = []
    for step in range(steps):
        asked, pairs, answer = look_up(codes, generator)
        to_q, to_k, to_v, to_word = optimiser.parameters
        q, k, v = _apply(to_q, asked), _apply(to_k, pairs), _apply(to_v, pairs)  # (models, batch, t, …)
        out = attention(q, k, v, scale=None if way == "divided" else 1.0)[:, :, 0] @ to_word
        loss = -out.log_softmax(-1).gather(-1, answer[..., None]).mean(dim=(1, 2))  # (models,)
        optimiser.step(loss.sum())  # a sum: models share no weight, so none of them feels the others
        losses.append(loss.detach())
        if step % LOOK == 0 or step == steps - 1:
            looks.append(_look_inside(q, k, divided=way == "divided"))
    return Trained(torch.stack(losses), *(torch.stack(column) for column in zip(*looks, strict=True)))


class Adam:
    """Adam (Kingma and Ba 2015) with a learning rate for every model of a stack.

    Written out for that reason, and because the first use of `torch.optim` imports seconds' worth of compiler.
    """

    def __init__(self, parameters: list[Tensor], rates: Tensor) -> None:
        """Every parameter has the models as its first axis; rates (models,)."""
        self.parameters = [p.requires_grad_() for p in parameters]
        self._rates = rates
        self._first = [torch.zeros_like(p) for p in parameters]
        self._second = [torch.zeros_like(p) for p in parameters]
        self._steps = 0

    def step(self, loss: Tensor) -> None:
        """Move every parameter down the loss."""
        self._steps += 1
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for p, g, m, v in zip(self.parameters, gradients, self._first, self._second, strict=True):
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                size = (v / (1 - 0.999**self._steps)).sqrt_().add_(1e-8)
                p -= self._rates.view(-1, *[1] * (p.ndim - 1)) * (m / (1 - 0.9**self._steps)) / size


def look_up(codes: tuple[Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """A fresh batch for every model: the keys asked for (models, batch, 1, width), pairs (…, pairs, width), answers."""
    key_code, value_code = codes
    models = len(key_code)
    key = torch.rand(models, BATCH, len(key_code[0]), generator=generator).argsort(-1)[..., :PAIRS]  # all different
    value = torch.randint(0, WORDS, (models, BATCH, PAIRS), generator=generator)
    model = torch.arange(models)[:, None, None]
    pairs = (key_code[model, key] + value_code[model, value]) / 2**0.5
    return (
        key_code[model, key[..., :1]],
        pairs,
        value[..., 0],
    )  # which of them is asked does not matter: order is random


def _apply(linear: Tensor, x: Tensor) -> Tensor:
    """Each model's map on its own tokens: (models, in, out), (models, batch, t, in) -> (models, batch, t, out)."""
    # One product per model: broadcasting over the batch would build a gradient per sequence, ten times as slow.
    y: Tensor = x.flatten(1, 2) @ linear
    return y.view(*x.shape[:3], -1)


def _look_inside(q: Tensor, k: Tensor, divided: bool) -> tuple[Tensor, Tensor]:
    """Standard deviation of the scores, and share of saturated rows, for every model."""
    with torch.no_grad():
        score = q @ k.mT / (q.shape[-1] ** 0.5 if divided else 1)
        top = score.softmax(-1).amax(-1)
        return score.std(dim=(1, 2, 3)), (top > 0.99).float().mean(dim=(1, 2))
