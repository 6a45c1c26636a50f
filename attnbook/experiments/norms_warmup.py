"""Is there a rate at which twelve layers with the norm after the sum learn only because of a warm-up?

Between the two rates of `norms_order`: at the lower one they learn anyway, at the higher one a warm-up is not enough.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from attnbook.experiments._stacked import CHANCE, copies, fresh, train
from attnbook.measure import experiment, measure, measure_mean

RATE = 7e-3


@experiment
def run(
    seed: int = 0, models: int = 3, layers: int = 12, width: int = 24, steps: int = 120, warmup: int = 50,
    last: int = 10,
) -> dict[str, Tensor]:  # fmt: skip
    """Half at full rate from the first step, half after a warm-up. Data: `sudden`, `warm` (steps, models)."""
    measure("norm.rate_middle", RATE, kind="parameter")
    generator = torch.Generator().manual_seed(seed)
    model = fresh(seed, 2 * models, layers, width=width, norm="post")
    warmups = torch.tensor([0, warmup]).repeat_interleave(models)
    losses = train(model, partial(copies, generator, 2 * models, 8), steps=steps, rate=RATE, warmup=warmups)
    sudden, warm = losses[:, :models], losses[:, models:]
    measure_mean("norm.loss_post_middle", sudden[-last:].mean(0).tolist())
    measure_mean("norm.loss_post_middle_warm", warm[-last:].mean(0).tolist(), quote=False)
    helped = warm[-last:].mean(0)
    some = bool((helped < 0.5 * CHANCE).any())  # at least one model has learned
    measure("norm.warmup_helps_some", some and float(helped.mean()) < float(sudden[-last:].mean()))
    return {"sudden": sudden, "warm": warm}
