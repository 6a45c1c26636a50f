"""The latest value of a variable: a task whose answer does not depend on how long the text is, and a model for it.

A text is a stream of assignments and questions, one token each, about eight variables with eight possible values:

    a=3   c=1   a?   a=5   b=0   a?   c?  …
                3              5    1

At a question the model must give the value that was assigned last. Whoever finds the latest assignment of a variable
in a text of 32 tokens can do so in one of 256. No experiment itself; the experiments beyond the trained length share
it. The model is an embedding, one layer of two heads of attention, a read-out: positions come in by one way of five, or
by none. Several models train side by side along a leading axis s.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from attnbook.experiments._attend import attend
from attnbook.experiments.scaling_training import Adam
from attnbook.models import IGNORE
from attnbook.reference import alibi_slopes, rope, sinusoidal_positions
from attnbook.reference.rope_scaling import RopeScaling

Encoding: TypeAlias = Literal["none", "sinusoidal", "learned", "rope", "alibi"]
ENCODINGS: Final = get_args(Encoding)
VARIABLES, VALUES = 8, 8
TRAINED = 32
"""The length of the texts in training."""
LONGEST = 8
"""How many times that the longest test is; the table of "learned" is that long, most of it never trained."""
WIDTH, HEADS = 32, 2


@dataclass(frozen=True)
class Texts:
    """Tokens (s, b, t), and at each question the right value, elsewhere IGNORE (s, b, t)."""

    tokens: Tensor
    targets: Tensor


def usual(generator: torch.Generator, models: int, batch: int, t: int) -> Texts:
    """As in training: every place assigns or asks with equal chance, about any variable."""
    variable = torch.randint(VARIABLES, (models, batch, t), generator=generator)
    value = torch.randint(VALUES, variable.shape, generator=generator)
    return answered(variable, value, torch.rand(variable.shape, generator=generator) < 0.5)


def once(generator: torch.Generator, models: int, batch: int, t: int) -> Texts:
    """One variable is assigned at the first place, asked for at the last, and nowhere between: t − 1 places away."""
    asked = torch.randint(VARIABLES, (models, batch, 1), generator=generator)
    variable = (asked + torch.randint(1, VARIABLES, (models, batch, t), generator=generator)) % VARIABLES
    value = torch.randint(VALUES, variable.shape, generator=generator)
    question = torch.rand(variable.shape, generator=generator) < 0.5
    variable[..., [0, -1]] = asked
    question[..., 0], question[..., -1] = False, True
    return answered(variable, value, question)


def answered(variable: Tensor, value: Tensor, question: Tensor) -> Texts:
    """Tokens and targets from what each place is about, all (s, b, t). Not asked for: what was never assigned."""
    tokens = torch.where(question, VARIABLES * VALUES + variable, variable * VALUES + value)
    place = torch.arange(tokens.shape[-1])
    latest = torch.full_like(place.expand(tokens.shape), -1)
    for name in range(VARIABLES):
        assigned = torch.where((variable == name) & ~question, place, -1).cummax(-1).values
        latest = torch.where(variable == name, assigned, latest)
    targets = value.gather(-1, latest.clamp(min=0))
    return Texts(tokens, targets.masked_fill(~question | (latest < 0), IGNORE))


@dataclass(frozen=True)
class Model:
    """`weights` have a leading axis s: one slice is one model."""

    encoding: Encoding
    weights: dict[str, Tensor]

    @classmethod
    def fresh(cls, encoding: Encoding, generator: torch.Generator, models: int) -> Model:
        """Untrained models with weights of their own; those of a table are drawn last."""

        def normal(*shape: int, std: float) -> Tensor:
            return torch.randn(models, *shape, generator=generator) * std

        weights = {"token": normal(VARIABLES * (VALUES + 1), WIDTH, std=0.5)}
        weights |= {name: normal(WIDTH, WIDTH, std=WIDTH**-0.5) for name in ("q", "k", "v", "out")}
        weights["value"] = normal(WIDTH, VALUES, std=WIDTH**-0.5)
        if encoding == "learned":
            weights["table"] = normal(LONGEST * TRAINED, WIDTH, std=0.5)
        return cls(encoding, weights)

    def __call__(
        self, tokens: Tensor, *, start: int = 0, scaling: RopeScaling | None = None, window: int | None = None
    ) -> Tensor:
        """Tokens (s, b, t) that stand from position `start` on -> logits (s, b, t, VALUES)."""
        s, b, t = tokens.shape
        position = torch.arange(start, start + t)
        x = self.weights["token"][torch.arange(s)[:, None, None], tokens]  # (s, b, t, width)
        if self.encoding == "learned":
            x = x + self.weights["table"][:, None, position]
        elif self.encoding == "sinusoidal":
            x = x + sinusoidal_positions(position, WIDTH, like=x)
        rows = x.flatten(1, 2)  # (s, b·t, width)
        q, k, v = ((rows @ self.weights[name]).view(s * b, t, HEADS, -1).transpose(1, 2) for name in "qkv")
        if self.encoding == "rope":
            q, k = (rope(y, position, scaling=scaling) for y in (q, k))
        slopes = alibi_slopes(HEADS, like=x) if self.encoding == "alibi" else None
        seen = attend(q, k, v, is_causal=True, alibi_slopes=slopes, window=window)
        mixed = rows + seen.transpose(1, 2).reshape(s, b * t, WIDTH) @ self.weights["out"]
        return (mixed @ self.weights["value"]).view(s, b, t, VALUES)


def losses(model: Model, texts: Texts) -> Tensor:
    """Mean −log p of the right value over the questions, in nats: (s,)."""
    logits, asked = model(texts.tokens), texts.targets != IGNORE
    right = logits.gather(-1, texts.targets.clamp(min=0)[..., None])[..., 0]
    return ((torch.logsumexp(logits, -1) - right) * asked).sum((1, 2)) / asked.sum((1, 2))


@functools.cache
def trained(encoding: Encoding, seed: int, models: int, steps: int, batch: int) -> Model:
    """`models` models, each trained on texts of TRAINED tokens of its own; the same ones for all who ask."""
    generator = torch.Generator().manual_seed(seed)
    model = Model.fresh(encoding, generator, models)
    optimiser = Adam(list(model.weights.values()), torch.full((models,), 0.01))
    for _ in range(steps):
        now = Model(encoding, dict(zip(model.weights, optimiser.parameters, strict=True)))
        optimiser.step(losses(now, usual(generator, models, batch, TRAINED)).sum())
    return Model(encoding, {k: p.detach() for k, p in zip(model.weights, optimiser.parameters, strict=True)})


@torch.no_grad()
def accuracy(
    model: Model, texts: Texts, *, start: int = 0, scaling: RopeScaling | None = None, window: int | None = None
) -> Tensor:
    """The share of questions among the last TRAINED places that every model answers rightly: (s,)."""
    logits = model(texts.tokens, start=start, scaling=scaling, window=window)[..., -TRAINED:, :]
    targets = texts.targets[..., -TRAINED:]
    asked = targets != IGNORE
    return ((logits.argmax(-1) == targets) & asked).sum((1, 2)) / asked.sum((1, 2))


def at_end(texts: Texts) -> Texts:
    """The same texts with nothing asked but the last place."""
    targets = texts.targets.clone()
    targets[..., :-1] = IGNORE
    return Texts(texts.tokens, targets)
