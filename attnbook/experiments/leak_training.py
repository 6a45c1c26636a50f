"""What does training look like when the mask lets each place see the next one?

The models predict the next digit of "six digits, then their complements" (`_complement`). One group has the right mask,
the other one is off by one: place i also sees place i + 1, which is the answer. No error is raised. Both groups are
judged on their loss and on what they write when they run freely, where no next place exists yet.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments import _complement as task
from attnbook.measure import experiment, measure, measure_mean
from attnbook.probes import causal_leak
from attnbook.reference import causal_mask

PLACES = 2 * task.HALF - 1  # the last digit is never an input in training


def right_mask(t: int) -> Tensor:
    """Place i sees 0 … i."""
    return torch.as_tensor(causal_mask(t, t, like=torch.empty(0)))


def leaky_mask(t: int) -> Tensor:
    """Place i sees 0 … i + 1: one diagonal too many."""
    return torch.ones(t, t, dtype=torch.bool).tril(1)


@experiment
def run(seed: int = 0, models: int = 8, steps: int = 200, batch: int = 32, rate: float = 0.01) -> dict[str, Any]:
    """Train `models` models with each mask, from different seeds, and one more group on a plain copy."""
    floor = measure("mask.loss_floor", task.loss_floor())
    train = partial(_train, seed=seed, models=models, steps=steps, batch=batch, rate=rate)
    honest, honest_losses = train(right_mask)
    leaky, leaky_losses = train(leaky_mask)
    copying, _ = train(leaky_mask, complement=False)

    generator = torch.Generator().manual_seed(seed + 1)
    x = task.sequences(generator, models, 256)
    honest_free = task.free_running(honest, x, right_mask)
    leaky_free = task.free_running(leaky, x, leaky_mask)
    copy_free = task.free_running(copying, task.sequences(generator, models, 256, complement=False), leaky_mask)
    with torch.no_grad():
        held_out = task.next_digit_loss(leaky, x, leaky_mask(PLACES))

    measure_mean("mask.honest_loss", honest_losses[-20:].mean(dim=0).tolist())
    measure_mean("mask.leaky_loss", leaky_losses[-20:].mean(dim=0).tolist())
    measure_mean("mask.leaky_held_out_loss", held_out.tolist())
    measure_mean("mask.honest_free", honest_free.tolist(), unit="ratio")
    measure_mean("mask.leaky_free", leaky_free.tolist(), unit="ratio")
    measure("mask.honest_free_worst", honest_free.min(), unit="ratio", spread=float(honest_free.std()))
    measure("mask.leaky_free_best", leaky_free.max(), unit="ratio", spread=float(leaky_free.std()))
    measure_mean("mask.leaky_copy", copy_free.tolist(), unit="ratio")

    measure("mask.probe_passes_right", causal_leak(partial(_logits, honest.one(0), right_mask), _inputs(honest, x)).ok)
    measure("mask.probe_finds_leak", not causal_leak(partial(_logits, leaky.one(0), leaky_mask), _inputs(leaky, x)).ok)
    return {
        "floor": floor.value, "honest_losses": honest_losses, "leaky_losses": leaky_losses,
        "honest_free": honest_free, "leaky_free": leaky_free, "copy_free": copy_free,
    }  # fmt: skip


def _train(
    mask: Any, *, complement: bool = True, seed: int, models: int, steps: int, batch: int, rate: float
) -> tuple[task.Model, Tensor]:
    generator = torch.Generator().manual_seed(seed)  # the same start and the same data for both masks
    model = task.Model.fresh(generator, models)

    def loss() -> Tensor:
        x = task.sequences(generator, models, batch, complement=complement)
        return task.next_digit_loss(model, x, mask(PLACES))

    return model, task.train(model, loss, steps=steps, rate=rate)


def _inputs(model: task.Model, x: Tensor) -> Tensor:
    """What the first model's attention gets for a few sequences: (b, t, width)."""
    return model.one(0).embed(x[:1, :3, :PLACES])[0]


def _logits(model: task.Model, mask: Any, embedded: Tensor) -> Tensor:
    """(b, t, width) -> (b, t, 10), as the probe wants it."""
    return model.read(embedded[None], mask(embedded.shape[1]))[0]
