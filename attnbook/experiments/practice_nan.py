"""A training whose loss becomes NaN: who made the first number that is not finite, and what is left to find it by?

Small models learn to copy, at a rate that is too high, with the softmax of the formula. Beside each the same model with
the maximum subtracted. Where the forward pass was finite and the step made NaN of the weights, the step before is
searched, backward, by torch's own search.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.experiments.first_nan import Block
from attnbook.experiments.practice_gradient import anomaly
from attnbook.measure import experiment, measure
from attnbook.models.tasks import copied
from attnbook.models.training import Batch, train
from attnbook.probes import Report, overflow
from attnbook.reference import naive_softmax, softmax

SYMBOLS, HALF = 16, 6


@experiment
def run(models: int = 6, steps: int = 200, rate: float = 0.15, b: int = 8, width: int = 32, seed: int = 0) -> Any:
    """Train each model until it breaks; its healthy twin 10 steps longer than that.

    Data: `report` and `late`, what the probe prints of the first model that broke in the forward pass, before and
    after another step; `broke`, the step of each.
    """
    broken = [Training(naive_softmax, seed + i, b, width) for i in range(models)]
    healthy = [Training(softmax, seed + i, b, width) for i in range(models)]
    broke = [one.until(steps, rate) for one in broken]
    ends = [twin.until((step or steps) + 10, rate) for twin, step in zip(healthy, broke, strict=True)]
    measure("practice.nan_broken", sum(step is not None for step in broke))
    measure("practice.nan_healthy_broken", sum(step is not None for step in ends))
    measure("practice.nan_healthy_found", sum(not overflow(one.model, one.tokens).ok for one in healthy))
    reports = [overflow(one.model, one.tokens) for one in broken]
    named = [i for i, report in enumerate(reports) if report.findings and report.findings[0].kind == "overflow"]
    found = [reports[i].findings[0] for i in named]
    backward = [anomaly(one.gradient_before) for i, one in enumerate(broken) if i not in named]
    measure("practice.nan_named", len(named))
    measure("practice.nan_in_softmax", bool(found) and all((f.module or "").endswith(".softmax") for f in found))
    measure("practice.nan_largest_score", max((f.amount for f in found), default=0.0))
    measure("practice.nan_rest_backward", all(backward))
    late = [broken[i].one_step_later(rate) for i in named]
    measure("practice.nan_late_share", min((share for share, _ in late), default=0.0), unit="ratio")
    measure(
        "practice.nan_late_not_run", all([f.kind for f in report.findings[:1]] == ["parameter"] for _, report in late)
    )
    shown = {"report": str(reports[named[0]]), "late": str(late[0][1])} if named else {}
    return {**shown, "broke": broke}


class Causal(Block):
    """The block of chapter 4 with a causal mask before its softmax."""

    def __init__(self, width: int, function: Callable[[Tensor], Tensor]) -> None:
        def masked(score: Tensor) -> Tensor:
            future = torch.ones(score.shape[-2:], dtype=torch.bool).triu(1)
            return function(score.masked_fill(future, -torch.inf))

        super().__init__(width, masked)


class Training:
    """A model on its way, with the batch that it read last; and `before`, both as they were a step earlier."""

    def __init__(self, function: Callable[[Tensor], Tensor], seed: int, b: int, width: int) -> None:
        self.generator, self.b = torch.Generator().manual_seed(seed), b
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = nn.Sequential(
                nn.Embedding(SYMBOLS + 1, width), Causal(width, function), Causal(width, function),
                nn.Linear(width, SYMBOLS + 1),
            )  # fmt: skip
        self.tokens, self.targets = self._drawn()
        self.now = self.before = (self.model, self.tokens, self.targets)

    def _drawn(self) -> Batch:
        return copied(self.generator, self.b, half=HALF, symbols=SYMBOLS)

    def _batch(self) -> Batch:
        self.tokens, self.targets = self._drawn()
        self.before, self.now = self.now, (copy.deepcopy(self.model), self.tokens, self.targets)
        return self.tokens, self.targets

    def until(self, steps: int, rate: float) -> int | None:
        """Train; the step whose loss is not finite, with the model and the batch as they were then. None: none was."""
        done = 0

        def count(step: int, loss: float) -> None:
            nonlocal done
            done = step + 1

        try:
            train(self.model, self._batch, steps=steps, rate=rate, progress=count)
        except FloatingPointError:
            return done
        return None

    def gradient_before(self) -> None:
        """The backward pass of the step before the one that broke."""
        model, tokens, targets = self.before
        _loss(model, tokens, targets).backward()  # type: ignore[no-untyped-call]

    def one_step_later(self, rate: float) -> tuple[float, Report]:
        """What is left to who goes on: the share of weights that are NaN, and what the probe says of them."""
        model = copy.deepcopy(self.model)
        optimizer = torch.optim.AdamW(model.parameters(), rate)
        _loss(model, self.tokens, self.targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        return float(weights.isnan().double().mean()), overflow(model, self.tokens)


def _loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
