"""Does a function know the order of its positions? Permute them: without order, the outputs are permuted and no more.

Self-attention without positions and without a mask passes; an encoding of positions, a causal mask or a window does
not, and should not: then the finding is what one hoped for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.probes.calling import Function, by_position, call, distance, rounding, unusable
from attnbook.probes.report import Finding, Report


def permutation_equivariance(
    fn: Function, x: Tensor, *, draws: int = 4, tolerance: float | None = None, seed: int = 0
) -> Report:
    """Permute the positions of x and see whether the outputs are the same ones, permuted.

    fn maps (b, t, ...) to (b, t, ...), x (b, t, ...) is an input for it, with positions on axis 1. The reversal and
    `draws` other permutations are tried, which leave no position in its place. An output counts as moved when it
    differs by more than `tolerance`; by default √ε · the largest output, because sums over keys change their order
    (ε: that of the output's dtype).

    A finding names the output, where it stood before, and how far it moved. The report also finds NaN and an fn that
    gives two outputs for one input.

    Raises ShapeError if x has no axis t, fewer than 2 positions, or fn changes (b, t); ValueError for no draws.
    """
    if x.ndim < 2 or x.shape[1] < 2:
        raise ShapeError(f"x has shape {tuple(x.shape)}: expected (b, t, ...) with t at least 2")
    if draws < 1:
        raise ValueError(f"draws is {draws}: expected at least 1")
    t = x.shape[1]
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.arange(t - 1, -1, -1), *(_mixed(t, generator) for _ in range(draws))]
    with torch.no_grad():
        before = call(fn, x)
        findings = unusable(before, call(fn, x))
        limit = rounding(before) if tolerance is None else tolerance
        moved: dict[int, tuple[float, int]] = {}
        most = 0.0
        for order in [] if findings else orders:
            far = by_position(distance(call(fn, x[:, order.to(x.device)]), before[:, order.to(before.device)]))
            most = max(most, float(far.max()))
            for place in torch.nonzero(far > limit).flatten().tolist():
                i = int(order[place])
                moved[i] = max(moved.get(i, (0.0, 0)), (float(far[place]), place))
    findings += [
        Finding(
            "order",
            f"the output of position {i} moved by {amount:.2g} when it was read at position {place}",
            output=i,
            input=place,
            amount=amount,
        )
        for i, (amount, place) in sorted(moved.items())
    ]
    checked = f"{len(orders)} permutations of {t} positions, largest difference {most:.2g}, tolerance {limit:.2g}"
    return Report("permutation equivariance", checked, tuple(findings), look=LOOK if moved else "")


LOOK = (
    "what knows the order: positions added to x or turned into q and k, a causal mask or a window, a recurrence, a "
    "convolution. If none of them was meant to be there, one of them is."
)


def _mixed(t: int, generator: torch.Generator) -> Tensor:
    """A cycle through all positions: none stays where it is."""
    cycle = torch.randperm(t, generator=generator)
    order = torch.empty_like(cycle)
    order[cycle] = cycle.roll(1)
    return order
