"""Digits, then their complements: the smallest task on which a mask shows what it does, and the smallest model for it.

A sequence is six random digits, then each of them subtracted from 9:

    3 1 4 1 5 9 | 6 8 5 8 4 0

Nobody can predict the first half; whoever can look back six places and subtract predicts the second without error. So
the loss of an honest model has a floor above 0, and a model below the floor has seen what it should not have.

The model is an embedding, one head of attention, a linear read-out: what the attention may see is all that matters.
Several models with different starting weights and different data train side by side along a leading axis s, because
eight small models cost little more than one. This module is no experiment itself; the experiments share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.experiments._attend import attend

DIGITS = 10
HALF = 6
BLANK = DIGITS  # one more symbol, for a place to be filled in
WIDTH = 32


def sequences(generator: torch.Generator, models: int, batch: int, *, complement: bool = True) -> Tensor:
    """Random sequences, different for each model: (s, b, 12). Without `complement` the second half is a plain copy."""
    first = torch.randint(DIGITS, (models, batch, HALF), generator=generator)
    second = DIGITS - 1 - first if complement else first
    return torch.cat([first, second], dim=-1)


def loss_floor() -> float:
    """The mean loss of a perfect honest model, in nats: five of the eleven predicted digits are pure chance."""
    return (HALF - 1) / (2 * HALF - 1) * math.log(DIGITS)


@dataclass
class Model:
    """`weights` have a leading axis s: one slice is one model."""

    weights: dict[str, Tensor]

    @classmethod
    def fresh(cls, generator: torch.Generator, models: int) -> Model:
        """Untrained models with weights of their own."""

        def normal(*shape: int, std: float) -> Tensor:
            return (torch.randn(models, *shape, generator=generator) * std).requires_grad_()

        weights = {"token": normal(DIGITS + 1, WIDTH, std=0.5), "position": normal(2 * HALF, WIDTH, std=0.5)}
        for name, width, size in (
            # Small q and k: attention begins near uniform. With size 1 some encoders stayed stuck on a wrong place.
            ("q", WIDTH, 0.1), ("k", WIDTH, 0.1), ("v", WIDTH, 1.0), ("out", WIDTH, 1.0), ("digit", DIGITS, 1.0),
        ):  # fmt: skip
            weights[name] = normal(WIDTH, width, std=size * WIDTH**-0.5)
        return cls(weights)

    def one(self, index: int) -> Model:
        """One of the models alone."""
        return Model({name: weight[index : index + 1].detach() for name, weight in self.weights.items()})

    def embed(self, tokens: Tensor) -> Tensor:
        """(s, b, t) -> (s, b, t, width): what the token is, plus where it stands."""
        models = torch.arange(tokens.shape[0])[:, None, None]
        return self.weights["token"][models, tokens] + self.weights["position"][:, None, : tokens.shape[-1]]

    def read(self, x: Tensor, mask: Tensor) -> Tensor:
        """(s, b, t, width) -> logits (s, b, t, 10); mask (t, t), True = may attend."""
        s, b, t, _ = x.shape
        rows = x.flatten(1, 2)  # (s, b·t, width)
        q, k, v = ((rows @ self.weights[name]).view(s * b, 1, t, WIDTH) for name in "qkv")
        seen = attend(q, k, v, mask=mask)
        mixed = rows + seen.reshape(s, b * t, WIDTH) @ self.weights["out"]
        return (mixed @ self.weights["digit"]).view(s, b, t, DIGITS)

    def __call__(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Tokens (s, b, t) -> logits (s, b, t, 10)."""
        return self.read(self.embed(tokens), mask)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−log p of the right digit at every place: logits (s, b, t, 10), target (s, b, t) -> (s, b, t), in nats."""
    return torch.logsumexp(logits, dim=-1) - logits.gather(-1, target[..., None])[..., 0]


def next_digit_loss(model: Model, x: Tensor, mask: Tensor) -> Tensor:
    """Mean loss of every model when each digit is predicted from the place before it: (s,)."""
    return cross_entropy(model(x[..., :-1], mask), x[..., 1:]).mean(dim=(1, 2))


def train(model: Model, loss: Callable[[], Tensor], *, steps: int, rate: float) -> Tensor:
    """Adam on the losses (s,) of freshly drawn batches; returns how they went, (steps, s)."""
    optimizer = torch.optim.Adam(model.weights.values(), rate)
    history = []
    for _ in range(steps):
        losses = loss()
        optimizer.zero_grad()
        torch.autograd.backward(losses.sum())  # no model's loss depends on another's weights
        optimizer.step()
        history.append(losses.detach())
    return torch.stack(history)


@torch.no_grad()
def free_running(model: Model, x: Tensor, masks: Callable[[int], Tensor], *, blank: bool = False) -> Tensor:
    """Give the first half, let the model write the second digit by digit: share of right digits per model, (s,).

    `masks(t)` is the mask for t tokens. With `blank` the model fills in a blank put at the end, as an encoder would;
    otherwise it reads the next digit off the last place.
    """
    written = x[..., :HALF]
    for _ in range(HALF):
        given = torch.cat([written, torch.full_like(written[..., :1], BLANK)], dim=-1) if blank else written
        logits = model(given, masks(given.shape[-1]))
        written = torch.cat([written, logits[..., -1:, :].argmax(dim=-1)], dim=-1)
    return (written[..., HALF:] == x[..., HALF:]).double().mean(dim=(1, 2))
