"""From how many layers on does a stack without residuals stop learning?

Models of several depths learn to copy (`copies`), with and without the residual, from the same starts on the same
data. The norms are there in both. A loss of `CHANCE` means that a model has learned nothing but the alphabet.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from attnbook.experiments._stacked import CHANCE, copies, fresh, train
from attnbook.measure import experiment, measure, measure_mean


@experiment
def run(
    seed: int = 0, models: int = 3, depths: tuple[int, ...] = (2, 4, 6, 8, 12), steps: int = 100, rate: float = 3e-3,
    width: int = 24, last: int = 10,
) -> dict[str, object]:  # fmt: skip
    """Loss at the end is the mean of the `last` steps.

    Data: `chance`, `depths`, by kind the losses at the end (depths, models), `curves` of the deepest (steps, models).
    """
    measure("norm.chance", CHANCE)
    ends: dict[str, Tensor] = {}
    curves: dict[str, Tensor] = {}
    for kind, residual in (("with", True), ("without", False)):
        found = []
        for depth in depths:
            model = fresh(seed, models, depth, width=width, residual=residual)
            generator = torch.Generator().manual_seed(seed)
            curves[kind] = train(model, partial(copies, generator, models, 8), steps=steps, rate=rate)
            found.append(curves[kind][-last:].mean(0))
            measure_mean(f"norm.loss_{depth}_{kind}", found[-1].tolist())
        ends[kind] = torch.stack(found)
    apart = float(ends["without"][-3:].min() - ends["with"].max())
    measure("norm.residual_decides", apart > 0)
    return {"chance": CHANCE, "depths": depths, "curves": curves, **ends}
