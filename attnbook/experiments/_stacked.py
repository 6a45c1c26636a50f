"""Many small transformers trained side by side, each with a start, data and learning rate of its own.

Their blocks are the package's own `TransformerBlock`s. The models lie one after another along the batch axis, and in
place of every linear map and every weight of a norm stands a stack of them: tokens (s · b, t), the first b of model 0.
Training costs much less than one model after another, and no model knows of another: Adam works on each number alone.
This module is no experiment itself; the experiments on norms and residuals share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from attnbook.models import Transformer, tasks
from attnbook.models.training import Batch, token_losses

SYMBOLS = 16
HALF = 4
CHANCE = math.log(SYMBOLS)
"""The loss, in nats, of a model that knows nothing: all symbols equally probable."""

BETAS, TINY = (0.9, 0.999), 1e-8  # as in torch's Adam


class Linears(nn.Module):
    """One linear map without bias for each of s models: x (s · b, …, n) -> (s · b, …, m)."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))  # (s, n, m)

    def forward(self, x: Tensor) -> Tensor:
        """Each model's tokens by its own map."""
        s, n, m = self.weight.shape
        return torch.bmm(x.reshape(s, -1, n), self.weight).view(*x.shape[:-1], m)


class Norms(nn.Module):
    """One norm, which is the same for all as long as it has no weights, then each model's weights and bias."""

    def __init__(self, norms: Sequence[nn.Module]) -> None:
        super().__init__()
        self.norm = norms[0].requires_grad_(False)  # its weight stays 1, its bias 0
        for name, start in self.norm.named_parameters():
            self.register_parameter(f"own_{name}", nn.Parameter(start.repeat(len(norms), 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (s · b, t, d)."""
        s, d = cast(Tensor, self.own_weight).shape
        y = self.norm(x).view(s, -1, d) * cast(Tensor, self.own_weight)[:, None]
        if hasattr(self, "own_bias"):
            y = y + cast(Tensor, self.own_bias)[:, None]
        return cast(Tensor, y.view_as(x))


class Tables(nn.Module):
    """One table of embeddings for each of s models: numbers (s · b, t) -> (s · b, t, d)."""

    def __init__(self, tables: Sequence[Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([table.detach() for table in tables]))  # (s, rows, d)

    def forward(self, which: Tensor) -> Tensor:
        """Each model's rows from its own table."""
        s, rows, d = self.weight.shape
        first = rows * torch.arange(s).repeat_interleave(which.shape[0] // s)
        return nn.functional.embedding(which + first[:, None], self.weight.view(s * rows, d))


class Stacked(nn.Module):
    """Transformers of the same sizes side by side: tokens (s · b, t) -> logits (s · b, t, vocab)."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.models = len(models)
        self.embedding = Tables([model.embedding.weight for model in models])
        self.table = Tables([model.table.weight for model in models if model.table is not None])
        one = models[0]
        for name, module in list(one.named_modules()):
            same = [model.get_submodule(name) for model in models]
            if isinstance(module, nn.Linear):
                replace(one, name, Linears(cast(Sequence[nn.Linear], same)))
            elif type(module).__name__.endswith("Norm"):
                replace(one, name, Norms(same))
        self.blocks, self.norm, self.head = one.blocks, one.norm, one.head

    def forward(self, tokens: Tensor) -> Tensor:
        """As a `Transformer` does it, learned positions included."""
        logits: Tensor = self.head(self.norm(streams(self, tokens)[-1]))
        return logits

    def losses(self, batch: Batch) -> Tensor:
        """Each model's mean loss over the tokens that are asked for, in nats: (s,)."""
        tokens, targets = batch
        losses = token_losses(self(tokens), targets).view(self.models, -1)
        return losses.sum(1) / (targets >= 0).view(self.models, -1).sum(1)


def streams(model: Stacked, tokens: Tensor) -> list[Tensor]:
    """What goes into the first block, and what comes out of each: (s · b, t, d) every one."""
    found = [model.embedding(tokens) + model.table(torch.arange(tokens.shape[1]).expand_as(tokens))]
    for block in model.blocks:
        found.append(block(found[-1]))
    return found


def fresh(seed: int, models: int, layers: int, *, width: int = 32, **options: Any) -> Stacked:
    """Untrained models of `layers` layers for `copies`; two stacks of the same seed and sizes start the same."""
    return Stacked([
        Transformer(
            SYMBOLS + 1, d_model=width, n_layers=layers, n_heads=2, d_ff=2 * width, positions="learned",
            max_positions=2 * HALF, seed=1000 * seed + i, **options,
        )
        for i in range(models)
    ])  # fmt: skip


def copies(generator: torch.Generator, models: int, b: int = 16) -> Batch:
    """Random symbols, a mark, the same symbols again, other ones for each model: tokens and targets (s · b, t)."""
    return tasks.copied(generator, models * b, half=HALF, symbols=SYMBOLS)


def train(
    model: Stacked, batch: Callable[[], Batch], *, steps: int, rate: float | Tensor, warmup: int | Tensor = 0
) -> Tensor:
    """Adam with a rate and a warm-up for each model: numbers or (s,). The losses before each step: (steps, s).

    As in `attnbook.models.train`, step i of a warm-up of w has (i + 1) / (w + 1) of the rate.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    means = [torch.zeros_like(p) for p in parameters]
    squares = [torch.zeros_like(p) for p in parameters]
    rates, warmups = torch.as_tensor(rate).expand(model.models), torch.as_tensor(warmup).expand(model.models)
    history = []
    for step in range(steps):
        losses = model.losses(batch())
        gradients = torch.autograd.grad(losses.sum(), parameters)  # no loss depends on another model's weights
        now = rates * ((step + 1) / (warmups + 1)).clamp(max=1)
        with torch.no_grad():
            for p, g, mean, square in zip(parameters, gradients, means, squares, strict=True):
                mean.lerp_(g, 1 - BETAS[0])
                square.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
                root = (square / (1 - BETAS[1] ** (step + 1))).sqrt_().add_(TINY)
                stride = (now / (1 - BETAS[0] ** (step + 1))).view(-1, *[1] * (p.ndim - 1))
                p.sub_(mean / root * stride)
        history.append(losses.detach())
    return torch.stack(history)


def block_gradients(model: Stacked, batch: Batch) -> Tensor:
    """Of each model and layer, the length of the gradient of the loss for all weights of that block: (s, layers)."""
    model.zero_grad()
    torch.autograd.backward(model.losses(batch).sum())
    return torch.stack([_length(block.parameters()) for block in model.blocks], 1)


def _length(parameters: Iterator[nn.Parameter]) -> Tensor:
    """√ of the sum of the squares of all gradients, for each model: (s,)."""
    grads = [p.grad for p in parameters if p.grad is not None]
    return torch.stack([grad.double().flatten(1).square().sum(1) for grad in grads]).sum(0).sqrt()


def replace(root: nn.Module, name: str, new: nn.Module) -> None:
    """Put another module in the place of that name."""
    parent, _, last = name.rpartition(".")
    setattr(root.get_submodule(parent), last, new)
