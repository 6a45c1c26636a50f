"""Small tasks that a small model learns in seconds, each a seeded source of batches: tokens (b, t) and targets (b, t).

A target is the token that follows, where a perfect reader of what came before could know it; elsewhere it is `IGNORE`,
so that a perfect model's loss is 0 and chance is the logarithm of the number of symbols.
"""

from __future__ import annotations

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


def _following(whole: Tensor, *, from_place: int) -> Batch:
    """All but the last symbol as tokens; as targets what follows each, from a place on."""
    tokens, targets = whole[:, :-1], whole[:, 1:].clone()
    targets[:, :from_place] = IGNORE
    return tokens, targets
