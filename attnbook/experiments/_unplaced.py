"""Small transformers without any encoding of positions, and the task that asks them for order and place.

A sequence is a first mark, random letters with one A and one B among them, and a question mark:

    ^ c f A e d B c ?

Every token is asked how many tokens stand before it, and the question mark whether A stands before B. Nothing but the
attention can know: a token's embedding says what it is and not where.

Several models train side by side along a leading axis s, as in `_complement`. No experiment itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from attnbook.experiments._attend import attend

LENGTH = 16
LETTERS = 8
FIRST, A, B, ASK = range(LETTERS, LETTERS + 4)
VOCAB = LETTERS + 4
WIDTH = 32
HEADS = 2


def sequences(generator: torch.Generator, models: int, batch: int) -> tuple[Tensor, Tensor]:
    """Tokens (s, b, t), and whether A stands before B (s, b)."""
    tokens = torch.randint(LETTERS, (models, batch, LENGTH), generator=generator)
    tokens[..., 0], tokens[..., -1] = FIRST, ASK
    # Two places among those between the marks, in either order.
    places = torch.rand(models, batch, LENGTH - 2, generator=generator).argsort(-1)[..., :2] + 1
    tokens.scatter_(-1, places[..., :1], A).scatter_(-1, places[..., 1:], B)
    return tokens, places[..., 0] < places[..., 1]


@dataclass
class Models:
    """`weights` have a leading axis s: one slice is one model."""

    weights: dict[str, Tensor]
    layers: int
    is_causal: bool

    @classmethod
    def fresh(cls, generator: torch.Generator, models: int, *, layers: int, is_causal: bool) -> Models:
        """Untrained models with weights of their own."""

        def normal(*shape: int) -> Tensor:
            drawn = torch.randn(models, *shape, generator=generator) / math.sqrt(shape[0])
            return drawn.requires_grad_()

        weights = {"token": (torch.randn(models, VOCAB, WIDTH, generator=generator) * 0.5).requires_grad_()}
        for i in range(layers):
            weights |= {f"{name}{i}": normal(WIDTH, WIDTH) for name in "qkvo"}
            weights |= {f"up{i}": normal(WIDTH, 4 * WIDTH), f"down{i}": normal(4 * WIDTH, WIDTH)}
        weights |= {"place": normal(WIDTH, LENGTH), "order": normal(WIDTH, 2)}
        return cls(weights, layers, is_causal)

    def __call__(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (s, b, t) -> logits of each token's place (s, b, t, LENGTH), of the order (s, b, 2)."""
        s, b, t = tokens.shape
        x = self.weights["token"][torch.arange(s)[:, None, None], tokens].flatten(1, 2)  # (s, b·t, width)
        for i in range(self.layers):
            x = x + self._attend(_norm(x), i, (s * b, t))
            x = x + F.gelu(_norm(x) @ self.weights[f"up{i}"]) @ self.weights[f"down{i}"]
        x = _norm(x).view(s, b, t, WIDTH)
        return (x @ self.weights["place"][:, None]), x[:, :, -1] @ self.weights["order"]

    def _attend(self, x: Tensor, layer: int, sequences: tuple[int, int]) -> Tensor:
        """Self-attention of one layer: x (s, b·t, width) -> the same shape."""

        def heads(name: str) -> Tensor:  # (s·b, h, t, width / h)
            return (x @ self.weights[f"{name}{layer}"]).view(*sequences, HEADS, WIDTH // HEADS).transpose(1, 2)

        out = attend(heads("q"), heads("k"), heads("v"), is_causal=self.is_causal)
        added: Tensor = out.transpose(1, 2).reshape(x.shape) @ self.weights[f"o{layer}"]
        return added


def train(models: Models, generator: torch.Generator, *, steps: int, batch: int, rate: float) -> None:
    """Adam on freshly drawn sequences: the loss of the places plus that of the order, of every model by itself."""
    optimizer = torch.optim.Adam(models.weights.values(), rate)
    s = next(iter(models.weights.values())).shape[0]
    place = torch.arange(LENGTH).expand(s * batch, LENGTH).reshape(-1)
    for step in range(steps):
        tokens, before = sequences(generator, s, batch)
        where, order = models(tokens)
        # A mean over all models, times their number: no model's loss depends on another's weights.
        loss = F.cross_entropy(where.reshape(-1, LENGTH), place) + F.cross_entropy(
            order.reshape(-1, 2), before.long().reshape(-1)
        )
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
        optimizer.zero_grad()
        torch.autograd.backward(s * loss)
        optimizer.step()


@torch.no_grad()
def judge(models: Models, generator: torch.Generator, *, batch: int) -> tuple[Tensor, Tensor]:
    """On fresh sequences: the place each letter names, (s, b, t − 2), and the share of right orders, (s,)."""
    s = next(iter(models.weights.values())).shape[0]
    tokens, before = sequences(generator, s, batch)
    where, order = models(tokens)
    return where[:, :, 1:-1].argmax(-1), (order.argmax(-1) == before).double().mean(-1)


def _norm(x: Tensor) -> Tensor:
    """Each token's vector with mean 0 and variance 1."""
    return F.layer_norm(x, x.shape[-1:])
