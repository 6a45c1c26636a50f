"""Mistakes with more than one imitation: what does not belong to the mistake may come out in several ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnbook.lab.step import Array, Model, Outcome, Reader, Recogniser, Seen

CLOSE = 1e-3
"""How far from an imitation a result may lie, as a share of the imitation's largest entry."""


def agrees(outcome: Outcome, expected: Array) -> bool:
    """Whether a call returned that, to `CLOSE`; NaN and infinities in the same places."""
    got = outcome.value
    if got is None or got.shape != expected.shape or np.iscomplexobj(got):
        return False
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)) or 1.0
    return near(np.asarray(got, np.float64), expected, CLOSE * scale)


def near(value: Array, wanted: Array, allowed: float) -> bool:
    """Whether two arrays of a shape are finite at the same places and close there, and the same elsewhere."""
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(value)) or not np.array_equal(
        value[~finite], wanted[~finite], equal_nan=True
    ):
        return False
    return bool((np.abs(value[finite] - wanted[finite]) <= allowed).all())


def imitates(reader: Reader, model: Model) -> bool:
    """Whether the reader's function returned what `model` does, in every case."""
    if len(reader.outcomes) < len(reader.cases):
        return False
    pairs = zip(reader.cases, reader.outcomes, strict=True)
    return all(agrees(outcome, np.asarray(model(*case.arguments))) for case, outcome in pairs)


def first_failure(reader: Reader, truth: Model) -> Seen | None:
    """The smallest case in which the reader's function returned something that is not even close to the truth."""
    for case, outcome in zip(reader.cases, reader.outcomes, strict=False):
        expected = np.asarray(truth(*case.arguments))
        if not agrees(outcome, expected):
            return Seen(case, expected, outcome)
    return None


def any_of(name: str, truth: Model, models: Sequence[Model]) -> Recogniser:
    """The mistake `name`, made by whoever returns in every case what one of the models returns."""

    def see(reader: Reader) -> Seen | None:
        return first_failure(reader, truth) if any(imitates(reader, model) for model in models) else None

    return Recogniser(name, see)
