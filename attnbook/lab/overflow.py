"""Overflow as plain Python tells it: `math.exp` raises where NumPy's gives inf, and 0/0 raises where NumPy's is NaN."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from attnbook.lab.step import Array, Failure, Model, Outcome, Reader, Recogniser, Seen

CLOSE = 1e-3
"""How near an imitation must come, in units of its largest finite number."""


def raised_by_numbers(failure: Failure | None) -> bool:
    """Did the call end in an OverflowError, or in a division by 0?"""
    names = ("OverflowError", "ZeroDivisionError", "FloatingPointError")
    return failure is not None and failure.kind == "raised" and failure.text.startswith(names)


def near(value: Array | None, wanted: Array) -> bool:
    """Are the shapes equal and the numbers nearly so, NaN and the infinities in the same places?"""
    if value is None or value.shape != wanted.shape:
        return False
    finite = np.abs(wanted[np.isfinite(wanted)])
    return bool(np.allclose(value, wanted, rtol=CLOSE, atol=CLOSE * finite.max(initial=0.0), equal_nan=True))


def recognisers(model: Model, flaws: Iterable[str], beside: Iterable[str] = ()) -> tuple[Recogniser, ...]:
    """For each of these flaws: it is made, alone or with one of those `beside`, and the exceptions show it."""
    return tuple(Recogniser(flaw, partial(_raises_there, model, flaw, tuple(beside))) for flaw in flaws)


def _raises_there(model: Model, flaw: str, beside: tuple[str, ...], reader: Reader) -> Seen | None:
    """Does the reader's function raise exactly where the imitation has inf or NaN, and give its numbers elsewhere?"""
    raised = [raised_by_numbers(outcome.failure) for outcome in reader.outcomes]
    if True not in raised or len(reader.outcomes) < len(reader.cases):
        return None
    for flaws in ({flaw}, *({flaw, other} for other in beside if other != flaw)):
        wrong = (np.asarray(model(*case.arguments, flaws=frozenset(flaws))) for case in reader.cases)
        if all(_alike(outcome, imitated) for outcome, imitated in zip(reader.outcomes, wrong, strict=True)):
            first = raised.index(True)
            case = reader.cases[first]
            return Seen(case, np.asarray(model(*case.arguments)), reader.outcomes[first])
    return None


def _alike(outcome: Outcome, imitated: Array) -> bool:
    if raised_by_numbers(outcome.failure):
        return not bool(np.isfinite(imitated).all())
    return near(outcome.value, imitated)
