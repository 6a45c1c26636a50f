"""A model with its own keys and values for each head is turned into a grouped one: how much comes back with training?

Small transformers learn a task with as many key and value heads as query heads. Then each group's heads are replaced by
their mean, by the first of them, or by untrained ones, and all weights are trained for a few more steps. Two tasks: to
go on with a sequence that repeats with a period of its own (`repeated`), and to copy (`copied`).
Ainslie et al. 2023 (arXiv:2305.13245), sections 2.1 and 3.3, compare the same three ways on T5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._stacked import Stacked, train
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models import Transformer, tasks
from attnbook.models.training import Batch

SYMBOLS, LENGTH, HEADS = 16, 16, 4
RATE, WARMUP, RATE_AFTER = 6e-3, 20, 3e-3
KINDS: tuple[tuple[int, str | int], ...] = ((2, "mean"), (1, "mean"), (1, 0), (1, "fresh"))
"""Key and value heads that are left, and where they come from."""


@experiment
def run(models: int = 6, steps: int = 250, more: int = 40, width: int = 32, seed: int = 0) -> dict[str, Any]:
    """Data: `losses` by number of heads and way, of each further step (more, models); `before`, the models' (models,).

    The task of `losses` is `repeated`; `copied` is measured with one head alone.
    """
    whole = trained(models, steps, width, seed, repeated)
    test = repeated(torch.Generator().manual_seed(1_000_000 + seed), 64 * models)
    with torch.no_grad():
        before = whole.losses(test)
    measure_mean("groups.tuned_before", before)
    measure("groups.tuned_more_share", more / steps, unit="ratio")
    losses, found = {}, {}
    for kv, way in KINDS:
        name = "first" if way == 0 else way
        grouped = regrouped(whole, fresh(models, kv, width, seed + 500), kv, way)
        with torch.no_grad():
            at_once = grouped.losses(test)
        after, losses[kv, name] = trained_on(grouped, models, more, seed, repeated, test)
        measure_mean(f"groups.tuned_{kv}_{name}_at_once", at_once)
        measure_mean(f"groups.tuned_{kv}_{name}_after", after)
        found[kv, name] = at_once
    single = any_head(whole, models, width, seed, test)
    measure_mean("groups.tuned_any_less_mean", single - found[1, "mean"])
    after, losses[HEADS, "same"] = trained_on(whole, models, more, seed, repeated, test)
    measure_mean("groups.tuned_as_it_was", after)
    measure_copies(models, 3 * steps // 5, more, width, seed)
    return {"losses": losses, "before": before}


def measure_copies(models: int, steps: int, more: int, width: int, seed: int) -> None:
    """The other task, one head for all: what the mean loses at once and after training, and any head at once."""
    whole = trained(models, steps, width, seed, copied)
    test = copied(torch.Generator().manual_seed(1_000_000 + seed), 64 * models)
    grouped = regrouped(whole, fresh(models, 1, width, seed + 500), 1, "mean")
    with torch.no_grad():
        at_once = grouped.losses(test)
    after, _ = trained_on(grouped, models, more, seed, copied, test)
    measure_mean("groups.copied_mean_at_once", at_once)
    measure_mean("groups.copied_mean_after", after)
    measure_mean("groups.copied_mean_less_any", at_once - any_head(whole, models, width, seed, test))


@torch.no_grad()
def any_head(whole: Stacked, models: int, width: int, seed: int, test: Batch) -> Tensor:
    """The loss with one head for all, averaged over which one it is: (models,)."""
    return torch.stack([
        regrouped(whole, fresh(models, 1, width, seed + 500), 1, i).losses(test) for i in range(HEADS)
    ]).mean(0)  # fmt: skip


def repeated(generator: torch.Generator, b: int) -> Batch:
    """Sequences that repeat with a period from 3 to half the length: tokens and targets (b, LENGTH)."""
    return tasks.repeated(generator, b, LENGTH, symbols=SYMBOLS, periods=(3, LENGTH // 2))


def copied(generator: torch.Generator, b: int) -> Batch:
    """Random symbols, a mark, the same symbols again: tokens and targets (b, LENGTH)."""
    return tasks.copied(generator, b, half=LENGTH // 2, symbols=SYMBOLS)


Task = Callable[[torch.Generator, int], Batch]


def fresh(models: int, n_kv_heads: int, width: int, seed: int) -> Stacked:
    """Untrained models side by side."""
    return Stacked([
        Transformer(
            SYMBOLS + 1, d_model=width, n_layers=2, n_heads=HEADS, n_kv_heads=n_kv_heads, d_ff=2 * width,
            positions="learned", max_positions=LENGTH, seed=1000 * seed + i,
        )
        for i in range(models)
    ])  # fmt: skip


def trained(models: int, steps: int, width: int, seed: int, task: Task) -> Stacked:
    """Models with keys and values of their own for each head, trained."""
    whole = fresh(models, HEADS, width, seed)
    generator = torch.Generator().manual_seed(seed)
    train(whole, partial(task, generator, 16 * models), steps=steps, rate=RATE, warmup=WARMUP)
    return whole


def trained_on(model: Stacked, models: int, more: int, seed: int, task: Task, test: Batch) -> tuple[Tensor, Tensor]:
    """A few more steps of the model itself, on the same data for every way.

    -> the losses on `test` (models,), and those on the way (more, models).
    """
    generator = torch.Generator().manual_seed(seed + 1)
    history = train(model, partial(task, generator, 16 * models), steps=more, rate=RATE_AFTER)
    with torch.no_grad():
        return model.losses(test), history


@torch.no_grad()
def regrouped(whole: Stacked, new: Stacked, n_kv_heads: int, way: str | int) -> Stacked:
    """`new` with the weights of `whole`; each group's keys and values are its mean, its i-th head, or fresh ones."""
    old = dict(whole.named_parameters())
    for name, parameter in new.named_parameters():
        weight: Tensor = old[name]
        if "k_proj" in name or "v_proj" in name:
            weight = parameter if way == "fresh" else merged(weight, n_kv_heads, way)
        parameter.copy_(weight)
    return new


def merged(weight: Tensor, n_kv_heads: int, way: str | int) -> Tensor:
    """One head for each group of neighbours: weight (s, d_model, HEADS · d) -> (s, d_model, n_kv_heads · d)."""
    s, n, _ = weight.shape
    heads = weight.view(s, n, n_kv_heads, HEADS // n_kv_heads, -1)
    return (heads.mean(3) if isinstance(way, str) else heads[:, :, :, way]).reshape(s, n, -1)
