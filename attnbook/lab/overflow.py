"""Overflow as plain Python tells it: `math.exp` raises where NumPy's gives inf, and 0/0 raises where NumPy's is NaN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from attnbook.lab.imitated import agrees
from attnbook.lab.step import Array, Failure, Model, Outcome, Reader, Recogniser, Seen


def raised_by_numbers(failure: Failure | None) -> bool:
    """Did the call end in an OverflowError, or in a division by 0?"""
    names = ("OverflowError", "ZeroDivisionError", "FloatingPointError")
    return failure is not None and failure.kind == "raised" and failure.text.startswith(names)


def recognisers(model: Model, flaws: Sequence[str], beside: Iterable[str] = ()) -> tuple[Recogniser, ...]:
    """Each of these flaws made alone and shown by exceptions, then each together with one of those `beside`."""
    alone = (Recogniser(flaw, partial(_raises_there, model, ({flaw},))) for flaw in flaws)
    others = tuple(beside)
    paired = (Recogniser(flaw, partial(_raises_there, model, [{flaw, other} for other in others])) for flaw in flaws)
    return (*alone, *paired)


def _raises_there(model: Model, tried: Iterable[set[str]], reader: Reader) -> Seen | None:
    """Does the reader's function raise exactly where an imitation has inf or NaN, and give its numbers elsewhere?"""
    raised = [raised_by_numbers(outcome.failure) for outcome in reader.outcomes]
    if True not in raised or len(reader.outcomes) < len(reader.cases):
        return None
    for flaws in tried:
        wrong = (np.asarray(model(*case.arguments, flaws=frozenset(flaws))) for case in reader.cases)
        if all(_alike(outcome, imitated) for outcome, imitated in zip(reader.outcomes, wrong, strict=True)):
            first = raised.index(True)
            case = reader.cases[first]
            return Seen(case, np.asarray(model(*case.arguments)), reader.outcomes[first])
    return None


def _alike(outcome: Outcome, imitated: Array) -> bool:
    if raised_by_numbers(outcome.failure):
        return not bool(np.isfinite(imitated).all())
    return agrees(outcome, imitated)
