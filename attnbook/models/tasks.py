"""Small tasks that a small model learns in seconds, each a seeded source of batches: tokens (b, t) and targets (b, t).

A target stands where a perfect reader of what came before could know it, and is the token that follows (in `two_places`
a number made of two tokens); elsewhere it is `IGNORE`, so that a perfect model's loss is 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from attnbook.models.training import IGNORE, Batch


def copied(generator: torch.Generator, b: int, *, half: int, symbols: int) -> Batch:
    """`half` random symbols, a mark, the same symbols again: the second half is asked for.

    Token `symbols` is the mark. The last symbol is only ever a target: tokens are (b, 2 · half).
    """
    first = torch.randint(symbols, (b, half), generator=generator)
    mark = torch.full((b, 1), symbols)
    whole = torch.cat([first, mark, first], 1)
    return _following(whole, from_place=half)


def repeated(generator: torch.Generator, b: int, t: int, *, symbols: int, periods: tuple[int, int]) -> Batch:
    """Random symbols that repeat with a period of their own in each sequence, drawn from `periods` (both included).

    Asked for are the symbols from the second of the second period on: before, nobody can know the period. A model that
    answers looks back to what followed the same symbol before, which is what an induction head does.

    Raises ValueError where a period does not fit into t twice.
    """
    low, high = periods
    if not 1 <= low <= high or 2 * high > t:
        raise ValueError(f"periods are {low} to {high} with t {t}: expected 1 ≤ low ≤ high ≤ t / 2")
    period = torch.randint(low, high + 1, (b, 1), generator=generator)
    once = torch.randint(symbols, (b, high), generator=generator)
    place = torch.arange(t + 1)
    whole = once.gather(1, place % period)
    tokens, targets = _following(whole, from_place=0)
    return tokens, targets.masked_fill(place[:t] < period, IGNORE)


def two_places(
    generator: torch.Generator,
    b: int,
    t: int,
    *,
    symbols: int,
    back: tuple[int, int] = (1, 3),
    answer: Literal["difference", "sum"] = "difference",
) -> Batch:
    """Random numbers below `symbols`; a place asks for the one `back[0]` places before less the one `back[1]` before.

    The target is that difference raised by symbols − 1, so that it counts from 0, or with `answer` "sum" the sum: below
    2 · symbols − 1 both, which is the number of symbols that a model must be able to say. Places with nothing so far
    back are not asked for. Two numbers are needed at once, and for the difference it matters which is which.

    Raises ValueError for places that are the same, not before, or further back than t holds, and an unknown answer.
    """
    first, second = back
    if not 1 <= min(back) < max(back) < t:
        raise ValueError(f"back is {back} with t {t}: expected two different numbers of places, from 1 to t - 1")
    if answer not in ("difference", "sum"):
        raise ValueError(f"answer is {answer!r}: expected 'difference' or 'sum'")
    tokens = torch.randint(symbols, (b, t), generator=generator)
    one, other = tokens.roll(first, 1), tokens.roll(second, 1)
    targets = one + other if answer == "sum" else one - other + symbols - 1
    return tokens, targets.masked_fill(torch.arange(t) < max(back), IGNORE)


def _following(whole: Tensor, *, from_place: int) -> Batch:
    """All but the last symbol as tokens; as targets what follows each, from a place on."""
    tokens, targets = whole[:, :-1], whole[:, 1:].clone()
    targets[:, :from_place] = IGNORE
    return tokens, targets
