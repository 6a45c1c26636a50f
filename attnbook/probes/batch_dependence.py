"""Does the answer for a sequence depend on who else is in the batch, or on how large it is?

Two different things, told apart. *Neighbours*: other sequences beside it, in a batch of the same size, change its
answer; nothing but a mistake does that (BatchNorm in training mode, statistics over the batch, experts whose capacity
is shared). *Size*: alone it gets another answer than in the batch; kernels that sum in another order for another size
make a little of that, and only more than rounding is a finding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.probes.calling import Function, call, distance, few_roundings, rounding
from attnbook.probes.report import Finding, Report


def batch_dependence(
    fn: Function, x: Tensor, *, tolerance: float | None = None, neighbours: float | None = None
) -> Report:
    """Give each sequence other neighbours, then none, and see whether its output moves.

    fn maps (b, ...) to (b, ...), x (b, ...) is an input for it, with at least 2 sequences that differ. Each sequence is
    read

    - in the batch, beside the others in another order and beside copies of itself: a difference above `neighbours`
      counts, by default a few roundings, which experts make that read more or fewer tokens at a time;
    - alone: a difference above `tolerance` counts, by default √ε · the largest output, ε that of its dtype.

    `checked` says how far outputs moved at most, also where nothing is found: that much is rounding.

    Raises ShapeError if x has fewer than 2 sequences or fn changes their number; ValueError if all are equal.
    """
    if x.ndim < 1 or x.shape[0] < 2:
        raise ShapeError(f"x has shape {tuple(x.shape)}: expected (b, ...) with b at least 2")
    if bool((x == x[:1]).all()):
        raise ValueError(f"x holds the same sequence {x.shape[0]} times: expected others, so that neighbours differ")
    b = x.shape[0]
    findings: list[Finding] = []
    beside, alone = 0.0, 0.0
    with torch.no_grad():
        before = call(fn, x, axes=1)
        limit = rounding(before) if tolerance is None else tolerance
        quiet = few_roundings(before) if neighbours is None else neighbours
        repeated = float(distance(call(fn, x, axes=1), before).max())
        if repeated > 0:
            text = f"the same x gave outputs that differ by {repeated:.2g}: switch off dropout, fn.eval()"
            return Report("batch dependence", f"{b} sequences", (Finding("not repeatable", text, amount=repeated),))
        for i in range(b):
            moved = max(float(distance(call(fn, other, axes=1)[i], before[i]).max()) for other in _beside_others(x, i))
            beside = max(beside, moved)
            if moved > quiet:
                text = f"sequence {i} moved by {moved:.2g} when only its neighbours in the batch changed"
                findings.append(Finding("neighbours", text, output=i, amount=moved))
            single = float(distance(call(fn, x[i : i + 1], axes=1)[0], before[i]).max())
            alone = max(alone, single)
            if single > limit and moved <= quiet:
                text = f"sequence {i} moved by {single:.2g} when it was read alone: more than rounding ({limit:.2g})"
                findings.append(Finding("size", text, output=i, amount=single))
    checked = (
        f"{b} sequences; with other neighbours outputs moved by at most {beside:.2g}, alone by {alone:.2g}, "
        f"tolerance {limit:.2g}"
    )
    return Report("batch dependence", checked, tuple(findings), look=LOOK if findings else "")


LOOK = (
    "norms over the batch (BatchNorm, or the wrong axis) and training mode, padding that is attended to, experts whose "
    "capacity is shared, a reshape that mixes b with another axis."
)


def _beside_others(x: Tensor, i: int) -> list[Tensor]:
    """Batches of the same size with sequence i where it is: the others in another order, and copies of i for them."""
    order = torch.arange(len(x))
    others = order[order != i]
    order[others] = others.roll(1)
    return [x[order.to(x.device)], x[i : i + 1].expand_as(x)]
