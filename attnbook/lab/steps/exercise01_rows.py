"""Exercise of chapter 1: a test that finds a softmax over the wrong axis, tried on functions right and wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnbook.lab.handed import ROWS_DO_NOT, ROWS_SUM
from attnbook.lab.step import Array, Case, Given, Part, Reader, Recogniser, Seen, Step

PASSED_BY: dict[str, tuple[str, ...]] = {
    "always_true": (*ROWS_SUM, *ROWS_DO_NOT),
    "always_false": (),
    "inverted": tuple(ROWS_DO_NOT),
    "only_the_formula": ("softmax of each row",),
    "one_query": (*ROWS_SUM, "softmax of the whole table"),
    "average": (*ROWS_SUM, "rows that sum to 1 on average"),
    "too_loose": (*ROWS_SUM, "softmax of each row, times 0.98", "softmax of each row, times 1.02"),
}
"""Mistake to the functions that a test with this mistake lets pass."""


def model(fn: Given, *, flaws: frozenset[str] = frozenset()) -> Array:
    """True for a function whose rows of weights sum to 1; with flaws, for what any of them lets pass."""
    passed = {name for flaw in flaws for name in PASSED_BY[flaw]} if flaws else set(ROWS_SUM)
    return np.asarray(fn.settings["weights"] in passed)


def _answers(reader: Reader) -> dict[str, bool] | None:
    """What the reader's test says of each kind of weights; None where it did not say true or false of all."""
    values = [outcome.value for outcome in reader.outcomes]
    if len(values) < len(reader.cases) or any(value is None or value.size != 1 for value in values):
        return None
    return {_kind(case): bool(value) for case, value in zip(reader.cases, values, strict=True)}


def _kind(case: Case) -> str:
    fn: Any = case.arguments[0]
    return str(fn.settings["weights"])


def _seen(reader: Reader, kind: str) -> Seen:
    """The reader's answer about that kind, which is not the right one."""
    i = [_kind(case) for case in reader.cases].index(kind)
    return Seen(reader.cases[i], np.asarray(kind in ROWS_SUM), reader.outcomes[i])


def _columns(reader: Reader) -> Seen | None:
    """True for columns, false for rows, and not simply the other way round."""
    said = _answers(reader)
    if said is None or not said["softmax of each column"] or said["softmax of each row"]:
        return None
    return None if said["softmax of the whole table"] else _seen(reader, "softmax of each column")


def _blind(reader: Reader) -> Seen | None:
    """True for columns and for rows, though not for everything: the test's own q, k and v cannot tell the two."""
    said = _answers(reader)
    if said is None or not said["softmax of each column"] or not said["softmax of each row"] or all(said.values()):
        return None
    return _seen(reader, "softmax of each column")


def _one_row(reader: Reader) -> Seen | None:
    """Right but for a function with one bad row, at one end or the other; a middle row of the uneven ones is fine."""
    said = _answers(reader)
    ends = ("the last row doubled", "the first row doubled")
    if said is None or not all(said[kind] for kind in ROWS_SUM):
        return None
    passed = [kind for kind in ROWS_DO_NOT if said[kind] and kind != "rows that sum to 1 on average"]
    return _seen(reader, passed[0]) if passed and set(passed) <= set(ends) else None


def _too_strict(reader: Reader) -> Seen | None:
    """True where a row is 1 exactly, false for some right function: the comparison leaves no room for rounding."""
    said = _answers(reader)
    if said is None or not said["all on the nearest key"] or any(said[kind] for kind in ROWS_DO_NOT):
        return None
    refused = [kind for kind in ROWS_SUM if not said[kind]]
    return _seen(reader, refused[0]) if refused else None


def _cases() -> tuple[Case, ...]:
    """The right one and the one that the test is for come first."""
    first = ("softmax of each row", "softmax of each column")
    kinds = (*first, *(kind for kind in (*ROWS_SUM, *ROWS_DO_NOT) if kind not in first))
    return tuple(Case((Given("attnbook.lab.handed:attention", {"weights": kind}),), ("fn",)) for kind in kinds)


STEP = Step(
    key="chapter-1",
    stem="exercise01_rows",
    page="01-one-line",
    folder="exercises",
    parts=(
        Part(
            name="rows_sum_to_one",
            model=model,
            cases=_cases(),
            flaws=tuple(PASSED_BY),
            recognisers=(
                Recogniser("columns", _columns),
                Recogniser("blind", _blind),
                Recogniser("too_strict", _too_strict),
                Recogniser("one_row", _one_row),
            ),
        ),
    ),
)
