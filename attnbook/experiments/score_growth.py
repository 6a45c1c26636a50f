"""What becomes of the scores of a model that divides by √d, while it is trained?

The division fixes how far they spread at the start. The model is the one of `scaling_training`.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook.experiments.scaling_training import LOOK, train
from attnbook.measure import experiment, measure_mean


@experiment
def run(d: int = 64, rates: tuple[float, ...] = (3e-3, 3e-2), steps: int = 200, models: int = 6, seed: int = 3) -> Any:
    """Train with the division at a quiet and at a bold learning rate, looking at the scores on the way.

    Data: `step` (looks,); `score_sd`, `saturated` (looks, rates, models).
    """
    trained = train(d, "divided", torch.tensor(rates).repeat_interleave(models), steps=steps, seed=seed)
    score_sd, saturated = (x.view(-1, len(rates), models) for x in (trained.score_sd, trained.saturated))
    measure_mean("scaling.grown_sd_start", score_sd[0].mean(0))  # both rates start from the same maps
    for i, name in enumerate(("quiet", "bold")):
        measure_mean(f"scaling.grown_sd_{name}", score_sd[-1, i])
        measure_mean(f"scaling.grown_saturated_{name}", saturated[-1, i], unit="ratio")
    measure_mean("scaling.grown_saturated_start", saturated[0].mean(0), unit="ratio")
    steps_seen = [*range(0, steps, LOOK), *([steps - 1] if (steps - 1) % LOOK else [])]
    return {"step": torch.tensor(steps_seen), "score_sd": score_sd, "saturated": saturated}
