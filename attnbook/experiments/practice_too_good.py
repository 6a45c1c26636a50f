"""Training on tokens that nobody can predict: whoever gets below ln(vocabulary) has read the answer.

Three ways: an honest model; one that sees a token ahead, through a convolution and not through its mask; and the honest
one with targets that nobody shifted, so that each token is to be predicted from itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._faults import VOCAB, Mixed
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models.training import Batch, train
from attnbook.probes import Report, causal_leak


@experiment
def run(models: int = 2, steps: int = 50, rate: float = 0.01, b: int = 8, t: int = 16, seed: int = 0) -> Any:
    """Train `models` models each way on fresh random tokens. Data: by way the losses (models, steps), `report`."""
    measure("practice.good_floor", math.log(VOCAB))
    losses: dict[str, Tensor] = {}
    reports: dict[str, list[Report]] = {}
    for way, ahead, shift in (("honest", False, 1), ("ahead", True, 1), ("unshifted", False, 0)):
        trained = [_trained(seed + i, steps, rate, b, t, ahead=ahead, shift=shift) for i in range(models)]
        losses[way] = torch.stack([loss for _, loss in trained])
        measure_mean(f"practice.good_{way}", losses[way][:, -10:].mean(1).tolist())
        x = torch.randint(VOCAB, (2, t), generator=torch.Generator().manual_seed(seed))
        reports[way] = [causal_leak(model.eval(), x, vocabulary=VOCAB) for model, _ in trained]
        measure(f"practice.good_{way}_found", sum(not report.ok for report in reports[way]))
    ahead_by = {(f.input or 0) - (f.output or 0) for report in reports["ahead"] for f in report.findings}
    measure("practice.good_sees_ahead", max(ahead_by, default=0))
    return {"report": str(reports["ahead"][0]), **losses}


def _trained(seed: int, steps: int, rate: float, b: int, t: int, *, ahead: bool, shift: int) -> tuple[Mixed, Tensor]:
    """A model and its losses; the target of a token is the one `shift` places on."""
    generator = torch.Generator().manual_seed(seed)
    model = Mixed(ahead=ahead, seed=seed)

    def batch() -> Batch:
        tokens = torch.randint(VOCAB, (b, t + 1), generator=generator)
        return tokens[:, :t], tokens[:, shift : t + shift]

    return model, train(model, batch, steps=steps, rate=rate)
