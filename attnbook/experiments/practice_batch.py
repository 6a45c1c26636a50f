"""An answer that depends on who else is in the batch: three causes, and the same models without them.

Norms over the batch, filling that is attended to, experts whose room is shared: the probe gives each sequence other
neighbours, then none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.experiments._faults import FAULTS, MENDED, Answering, sentences
from attnbook.measure import experiment, measure
from attnbook.probes import Report, batch_dependence


@experiment
def run(b: int = 6, t: int = 12, seed: int = 0) -> Any:
    """Sentences of different lengths through every model. Data: the reports by name."""
    x = sentences(torch.Generator().manual_seed(seed), b, t)
    broken, mended = _reports(FAULTS, x), _reports(MENDED, x)
    measure("practice.batch_faults", len(broken))
    measure("practice.batch_found", sum(not report.ok for report in broken.values()))
    measure("practice.batch_mended", len(mended))
    measure("practice.batch_false_alarms", sum(not report.ok for report in mended.values()))
    moved = [max(finding.amount for finding in report.findings) for report in broken.values() if report.findings]
    measure("practice.batch_least_moved", min(moved, default=0.0))
    measure("practice.batch_hidden_moved", _moved_alone(Answering(side="left", hidden=True), x))
    equal = sentences(torch.Generator().manual_seed(seed), b, t, shortest=t)  # nothing is filled, so nothing is seen
    measure("practice.batch_equal_lengths_pass", batch_dependence(FAULTS["filling attended to"](), equal).ok)
    return {"broken": broken, "mended": mended}


def _reports(models: Mapping[str, Callable[[], nn.Module]], x: Tensor) -> dict[str, Report]:
    return {name: batch_dependence(make(), x) for name, make in models.items()}


def _moved_alone(model: nn.Module, x: Tensor) -> float:
    """How far outputs of sequences that are read alone lie from those in the batch."""
    with torch.no_grad():
        together = model(x)
        return max(float((model(x[i : i + 1])[0] - together[i]).abs().max()) for i in range(len(x)))
