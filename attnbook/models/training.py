"""A training loop that is short enough to read: batches in, losses out, every step seeded by whoever draws the batches.

What stands out: a loss is the mean over *tokens*, also where a step is made of several micro-batches of different
sizes. The mean of the micro-batches' means is another number, and was shipped as a bug more than once (transformers
#34191): losses 2, 2, 2 and nine 1s are 15 over 12 tokens, not the mean of 2 and 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnbook.errors import ShapeError
from attnbook.models.transformer import SparseMLP

IGNORE = -100
"""A target that is not asked for."""

Batch: TypeAlias = tuple[Tensor, Tensor]
"""Tokens (b, t), and for each the token to predict, or IGNORE (b, t)."""


def train(
    model: nn.Module,
    batch: Callable[[], Batch],
    *,
    steps: int,
    rate: float,
    warmup: int = 0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    micro_batches: int = 1,
    balance: float = 0.0,
    progress: Callable[[int, float], None] | None = None,
) -> Tensor:
    """Train by AdamW on batches drawn one after another -> the loss of each step before it was taken (steps,), in nats.

    - `rate` is reached after `warmup` steps in equal strides, and kept. `clip`: the longest gradient, all weights
      together. `weight_decay` as in AdamW.
    - `micro_batches`: how many batches make a step; its loss is the mean over all their tokens.
    - `balance`: how much of the experts' `aux_loss` is added to what is minimised (not to what is returned).
    - `progress` is told each step and its loss; `to_stderr` is one such.

    The model is left in training mode. Raises ValueError for numbers out of range, ShapeError for targets that are not
    (b, t), FloatingPointError where a loss is no longer finite, with the step.
    """
    if steps < 0 or micro_batches < 1 or warmup < 0 or rate <= 0:
        raise ValueError(
            f"steps is {steps}, micro_batches {micro_batches}, warmup {warmup}, rate {rate}: expected steps and warmup "
            f"from 0, micro_batches from 1, rate above 0"
        )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=weight_decay)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / (warmup + 1), 1.0)
        parts = [batch() for _ in range(micro_batches)]
        optimizer.zero_grad()
        loss = _accumulate(model, parts, balance)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss of step {step} is {float(loss)}: the weights are those before it")
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss)
        if progress is not None:
            progress(step, float(loss))
    return torch.stack(losses) if losses else torch.empty(0)


def mean_token_loss(parts: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The mean loss over all tokens of several parts, in nats: of each the logits (b, t, vocab) and targets (b, t).

    NaN where no token is asked for. Raises ShapeError where the axes don't fit.
    """
    pairs = list(parts)
    total = torch.stack([token_losses(logits, targets).sum() for logits, targets in pairs]).sum()
    return total / sum(_asked(targets) for _, targets in pairs)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """−log p of each target, in nats, 0 where none is asked for: logits (b, t, vocab), targets (b, t) -> (b, t)."""
    if logits.ndim != 3 or targets.shape != logits.shape[:2]:
        raise ShapeError(
            f"targets has axes {tuple(targets.shape)} and logits {tuple(logits.shape)}: expected (b, t), (b, t, vocab)"
        )
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none").view_as(
        targets
    )


@torch.no_grad()
def right_tokens(logits: Tensor, targets: Tensor) -> Tensor:
    """The share of the asked-for tokens that are the most probable: logits (b, t, vocab), targets (b, t) -> 0 to 1."""
    asked = targets != IGNORE
    return (logits.argmax(-1) == targets)[asked].double().mean()


def to_stderr(steps: int, every: int = 50) -> Callable[[int, float], None]:
    """Progress for `train`: a line on standard error every so many steps, and for the last."""

    def tell(step: int, loss: float) -> None:
        if step % every == 0 or step == steps - 1:
            print(f"step {step} of {steps}: loss {loss:.3f}", file=sys.stderr, flush=True)

    return tell


def _accumulate(model: nn.Module, parts: Sequence[Batch], balance: float) -> Tensor:
    """Add the gradients of all parts, weighted by their tokens -> the mean loss over all tokens."""
    n = sum(_asked(targets) for _, targets in parts)
    whole = torch.zeros(())
    for tokens, targets in parts:
        loss = token_losses(model(tokens), targets).sum() / n
        whole = whole + loss.detach()
        routers = [m.routing for m in model.modules() if isinstance(m, SparseMLP) and m.routing is not None]
        if balance:
            loss = loss + balance * torch.stack([routing.aux_loss for routing in routers]).sum() / len(parts)
        loss.backward()  # type: ignore[no-untyped-call]
    return whole


def _asked(targets: Tensor) -> int:
    return int((targets != IGNORE).sum())
