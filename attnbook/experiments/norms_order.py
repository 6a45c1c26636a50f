"""Norm before or after: what is it that the rate and its warm-up decide?

Twelve layers learn to copy (`copies`) with the norm before each part ("pre") and after the sum ("post"), at two rates,
at full rate from the first step or after a warm-up, all side by side.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from attnbook.experiments._stacked import CHANCE, copies, fresh, train
from attnbook.measure import experiment, measure, measure_mean

ORDERS: tuple[Literal["pre", "post"], ...] = ("pre", "post")
RATES = {"low": 3e-3, "high": 1e-2}


@experiment
def run(
    seed: int = 0, models: int = 3, layers: int = 12, width: int = 24, steps: int = 120, warmup: int = 50,
    last: int = 10,
) -> dict[str, object]:  # fmt: skip
    """Data: `chance`, `curves` by order, rate and warm-up (steps, models)."""
    conditions = list(product(RATES, (0, warmup)))
    rates = torch.tensor([RATES[rate] for rate, _ in conditions]).repeat_interleave(models)
    warmups = torch.tensor([slow for _, slow in conditions]).repeat_interleave(models)
    measure("norm.rate_low", RATES["low"], kind="parameter")
    measure("norm.rate_high", RATES["high"], kind="parameter")
    curves: dict[tuple[str, str, bool], Tensor] = {}
    count = len(rates)
    for order in ORDERS:
        generator = torch.Generator().manual_seed(seed)
        model = fresh(seed, count, layers, width=width, norm=order)
        losses = train(model, partial(copies, generator, count, 8), steps=steps, rate=rates, warmup=warmups)
        for (rate, slow), part in zip(conditions, losses.tensor_split(len(conditions), 1), strict=True):
            curves[order, rate, slow > 0] = part
            name = f"{order}_{rate}" + ("_warm" if slow else "")
            measure_mean(f"norm.loss_{name}", part[-last:].mean(0).tolist())
    ends = {key: part[-last:].mean(0) / CHANCE for key, part in curves.items()}
    low = torch.cat([ends[order, "low", False] for order in ORDERS])
    measure("norm.both_learn_low", bool((low < 0.75).all()))
    measure("norm.pre_learns_high", bool((ends["pre", "high", False] < 0.75).all()))
    measure("norm.post_fails_high", bool((ends["post", "high", False] > 0.9).all()))
    measure("norm.warmup_not_enough", not bool((ends["post", "high", True] < 0.75).all()))
    return {"chance": CHANCE, "curves": curves}
