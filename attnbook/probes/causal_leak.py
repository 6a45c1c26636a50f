"""Does the past stay where it is when the future changes? The test of a causal model that needs no look at its mask.

One input position at a time is replaced; every earlier output must be exactly what it was. That catches a mask that is
missing, inverted or off by one, masking after softmax (the future leaks through the sum), statistics over time or
batch, and whatever else lets position i know about position j > i.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.probes.calling import Function, by_position, call, distance, few_roundings, unusable
from attnbook.probes.report import Finding, Report


def causal_leak(
    fn: Function,
    x: Tensor,
    *,
    positions: Iterable[int] | None = None,
    draws: int = 2,
    vocabulary: int | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> Report:
    """Change the input at each position and see whether an earlier output moves.

    fn maps (b, t, ...) to (b, t, ...): a module in evaluation mode, or any function. x (b, t, ...) is an input for it:
    floats, or integers for tokens, which are replaced by others below `vocabulary` (default: the largest in x, plus 1).
    Positions are axis 1: of x (b, h, t, d) the heads would be tested, and found ok. Give x (b, t, h, d) and let fn
    transpose.

    `positions` are the input positions to change, all by default; each is changed `draws` times, so fn is called
    2 + len(positions) · draws times. An output counts as moved when it differs by more than `tolerance`. By default
    that is 0, as equal inputs give equal outputs on one machine, unless the past moves everywhere by no more than a few
    roundings of the largest output: an fn may sum in another order (experts read more or fewer tokens at a time), and
    then `checked` says by how much.

    The report also finds what would make the test worthless: an fn that gives two outputs for one input (dropout), NaN,
    and an fn whose output no change reaches.

    Raises ShapeError if x has no axis t or fn changes (b, t); ValueError for positions outside x, fewer than 1 draw, or
    tokens without an alternative.
    """
    if x.ndim < 2 or x.shape[1] < 1:
        raise ShapeError(f"x has shape {tuple(x.shape)}: expected (b, t, ...) with t at least 1")
    t = x.shape[1]
    chosen = list(range(t)) if positions is None else list(positions)
    if draws < 1 or not chosen or not all(0 <= j < t for j in chosen):
        raise ValueError(f"positions {chosen}, draws {draws}: expected positions from 0 to {t - 1} and at least 1 draw")
    generator = torch.Generator().manual_seed(seed)

    with torch.no_grad():
        before, again = call(fn, x), call(fn, x)
        findings = unusable(before, again)
        leak: dict[int, tuple[float, int]] = {}  # output position -> how far it moved at most, and for which input
        reached = False
        for j in [] if findings else chosen:
            for _ in range(draws):
                moved = by_position(distance(call(fn, _changed(x, j, vocabulary, generator)), before))  # (t,)
                reached |= bool((moved > 0).any())
                for i in torch.nonzero(moved[:j] > (tolerance or 0.0)).flatten().tolist():
                    leak[i] = max(leak.get(i, (0.0, 0)), (float(moved[i]), j))
    checked = f"{len(chosen)} of {t} positions changed {draws} times, tolerance {tolerance or 0:g}"
    most = max((amount for amount, _ in leak.values()), default=0.0)
    if leak and tolerance is None and most <= few_roundings(before):
        checked += f"; the past moved by at most {most:.2g}, which is rounding"
        leak = {}
    findings += [_leak(i, j, amount) for i, (amount, j) in sorted(leak.items())]
    if not findings and not reached:
        findings.append(Finding("unreached", "no output moved for any change: is the output of fn made from x at all?"))
    return Report("causal leak", checked, tuple(findings), look=LOOK if leak else "")


LOOK = (
    "the mask: is it there, the right way round (True = may attend, or True = drop), off by one, applied before "
    "softmax, aligned at the ends where t_q ≠ t_kv? Statistics over time or, in training mode, over the batch?"
)


def _changed(x: Tensor, j: int, vocabulary: int | None, generator: torch.Generator) -> Tensor:
    """A copy of x with position j replaced in every sequence: another token, or a step about as large as x itself."""
    y, shape = x.clone(), x[:, j].shape
    if x.is_floating_point():
        size = float(x.double().std(correction=0)) or 1.0
        y[:, j] += (size * torch.randn(shape, generator=generator)).to(x)
        return y
    kinds = int(x.max()) + 1 if vocabulary is None else vocabulary
    if kinds < 2:
        raise ValueError(f"x holds {kinds} kind of token: pass vocabulary= at least 2, so that there is another one")
    y[:, j] = (x[:, j] + torch.randint(1, kinds, shape, generator=generator).to(x)) % kinds
    return y


def _leak(i: int, j: int, amount: float) -> Finding:
    text = f"output {i} moved by {amount:.2g} when only input {j} changed: it sees {j - i} ahead"
    return Finding("leak", text, output=i, input=j, amount=amount)
