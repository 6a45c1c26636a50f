"""Small models with RoPE whose turns are slowed after training: what each way to stretch the context gives, and costs.

The models are those of `longer_training`, trained on 32 tokens and never trained again. Each is asked in a text of
`factor` times that length and in one of the trained length, with plain RoPE and with its turns slowed for `factor`.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook.experiments import _latest as task
from attnbook.experiments._latest import TRAINED
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference.rope_scaling import LinearScaling, NTKScaling, RopeScaling, YarnScaling


@experiment
def run(
    factor: int = 4, seed: int = 0, models: int = 4, steps: int = 300, batch: int = 16, tested: int = 48
) -> dict[str, Any]:
    """Ask the models of `longer_training` with each scaling. Data: `long` and `short`, accuracies by way (models,)."""
    model = task.trained("rope", seed, models, steps, batch)
    ways: dict[str, RopeScaling | None] = {
        "plain": None, "linear": LinearScaling(factor), "ntk": NTKScaling(factor), "yarn": YarnScaling(factor, TRAINED),
    }  # fmt: skip
    generator = torch.Generator().manual_seed(seed + 2)
    texts = {name: task.usual(generator, models, tested, n * TRAINED) for name, n in (("long", factor), ("short", 1))}
    found: dict[str, dict[str, torch.Tensor]] = {name: {} for name in texts}
    for name, these in texts.items():
        for way, scaling in ways.items():
            shares = task.accuracy(model, these, scaling=scaling)
            found[name][way] = shares
            measure_mean(f"longer.{name}_{way}", shares.tolist(), unit="ratio")
    long, short = found["long"], found["short"]
    measure("longer.slowing_helps", all(bool((long[way] > long["plain"] + 0.1).all()) for way in ("linear", "yarn")))
    measure(
        "longer.slowing_costs",
        all(float(short[way].mean()) < float(short["plain"].mean()) for way in ways if way != "plain"),
    )
    return {"factor": factor, **found}
