"""Step 3: a softmax over the last axis that does not overflow."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from attnbook.lab import overflow
from attnbook.lab.imitated import agrees, any_of, first_failure
from attnbook.lab.step import Array, Case, Outcome, Part, Reader, Recogniser, Seen, Step

FLAWS: Final = (
    *("no_maximum", "whole_maximum", "minimum", "mean", "absolute", "from_zero", "added", "reversed", "divided"),
    *(
        "maximum_of_columns",
        "wrong_axis",
        "whole_softmax",
        "sum_of_columns",
        "whole_sum",
        "no_sum",
        "no_exp",
        "logarithm",
    ),
)
OVERFLOWING: Final = (
    *("no_maximum", "whole_maximum", "minimum", "mean", "absolute", "from_zero", "added", "reversed"),
)
"""Those that plain Python tells by exceptions."""


def softmax(x: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
    """Softmax over the last axis of x (…, n), in float64; with `FLAWS`, inf and NaN where such a function has them."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        shifted = _shifted(x, flaws)
        e = x if "no_exp" in flaws else np.exp(shifted)
        if "no_sum" in flaws:
            return np.asarray(e)
        total = e.sum(axis=_axis(flaws, "sum_of_columns", "whole_sum"), keepdims=True)
        return np.asarray(shifted - np.log(total) if "logarithm" in flaws else e / total)


def _axis(flaws: frozenset[str], columns: str, whole: str) -> int | None:
    """Along which axis to go: the last, with flaws the first, or None for all of them."""
    if {whole, "whole_softmax"} & flaws:
        return None
    return 0 if {columns, "wrong_axis"} & flaws else -1


def _shifted(x: Array, flaws: frozenset[str]) -> Array:
    """What goes into exp."""
    taken = _subtracted(x, flaws)
    if "divided" in flaws:
        return np.asarray(x / taken)
    return np.asarray(taken - x if "reversed" in flaws else x - taken)


def _subtracted(x: Array, flaws: frozenset[str]) -> Array:
    """What is subtracted from x before exp, of a shape that fits."""
    if "no_maximum" in flaws:
        return np.zeros(())
    axis = _axis(flaws, "maximum_of_columns", "whole_maximum")
    if "minimum" in flaws:
        return np.asarray(x.min(axis=axis, keepdims=True))
    if "mean" in flaws:
        return np.asarray(x.mean(axis=axis, keepdims=True))
    if "absolute" in flaws:
        return np.asarray(np.abs(x).max(axis=axis, keepdims=True))
    top = np.asarray(x.max(axis=axis, keepdims=True))
    if "from_zero" in flaws:
        return np.asarray(np.maximum(top, 0))
    return -top if "added" in flaws else top


def _without_nan(x: Array) -> Array:
    """A softmax without the maximum whose NaN are made 0 afterwards."""
    return np.asarray(np.nan_to_num(softmax(x, flaws=frozenset({"no_maximum"}))))


def _negative(x: Array) -> Array:
    """The softmax of −x: reversed, and no overflow."""
    return softmax(-x)


def _of_quotient(x: Array) -> Array:
    """The softmax of x divided by its maximum: NaN where that is infinite, and not only there."""
    with np.errstate(invalid="ignore"):
        return softmax(x / x.max(axis=-1, keepdims=True))


def _table(reader: Reader, axes: set[int]) -> list[tuple[Array, Outcome]]:
    """The cases with so many axes, and what the reader's function did with each."""
    tried = ((np.asarray(c.arguments[0]), o) for c, o in zip(reader.cases, reader.outcomes, strict=False))
    return [(x, outcome) for x, outcome in tried if x.ndim in axes]


def _right(reader: Reader, axes: set[int]) -> list[bool]:
    """Of the cases with so many axes: is the reader's answer right?"""
    return [agrees(outcome, softmax(x)) for x, outcome in _table(reader, axes)]


def _seen(x: Array, outcome: Outcome) -> Seen:
    return Seen(Case((x,), ("x",)), softmax(x), outcome)


def one_axis_only(reader: Reader) -> Seen | None:
    """Right for every single row, and an exception as soon as there is a table of them."""
    tables = [outcome.failure for _, outcome in _table(reader, {2, 3})]
    raises = bool(tables) and all(failure is not None and failure.kind == "raised" for failure in tables)
    return first_failure(reader, softmax) if raises and all(_right(reader, {1})) else None


def two_axes_only(reader: Reader) -> Seen | None:
    """Right for every table, also of large scores; wrong or an exception for a row alone or for a stack of tables."""
    tables = _right(reader, {2})
    if not tables or not all(tables) or not any(_wrong_throughout(reader, axes) for axes in (1, 3)):
        return None
    return first_failure(reader, softmax)


def _wrong_throughout(reader: Reader, axes: int) -> bool:
    """Whether no case with so many axes and ordinary scores is right, so that it is the axes that are to blame."""
    return not any(agrees(o, softmax(x)) for x, o in _table(reader, {axes}) if np.abs(x).max() < 10)


def wrong_axis(reader: Reader) -> Seen | None:
    """A softmax along the first of two axes, whatever the function does with one axis or three."""
    tables, wrong = _table(reader, {2}), frozenset({"wrong_axis"})
    if not all(agrees(outcome, softmax(x, flaws=wrong)) for x, outcome in tables):
        return None
    return _seen(*tables[0]) if tables else None


def not_hidden(reader: Reader) -> Seen | None:
    """A score of −inf gets next to nothing: close enough to be right, and no zero."""
    tried = _table(reader, {1, 2, 3})
    if not all(_right(reader, {1, 2, 3})):
        return None
    leaks = (_seen(x, o) for x, o in tried if o.value is not None and o.value[np.isneginf(x)].any())
    return next(leaks, None)


def clipped(reader: Reader) -> Seen | None:
    """Scores beyond some bound count as equal: [3000, 2000] gets the weights of [0, 0], and [3, 2] its own."""
    far, close = (np.asarray(row, np.float32) for row in ([3000.0, 2000.0], [3.0, 2.0]))
    outcome = reader.call(far)
    if not agrees(outcome, np.asarray([0.5, 0.5])):
        return None
    if not agrees(reader.call(close), softmax(close)):
        return None
    return _seen(far, outcome)


def epsilon(reader: Reader) -> Seen | None:
    """A little is added to the sum: what the weights lack of 1 is twice as much in a row of one as in a row of two."""
    rows = np.zeros(1), np.zeros(2)  # float64, where 1e-12 shows
    outcomes = [reader.call(row) for row in rows]
    lack = []
    for row, outcome in zip(rows, outcomes, strict=True):
        if outcome.value is None or outcome.value.shape != row.shape:
            return None
        lack.append(1 - float(outcome.value.sum()))
    if not (lack[1] > 1e-13 and 1.8 < lack[0] / lack[1] < 2.2):
        return None
    return replace(_seen(rows[0], outcomes[0]), details={"epsilon": f"{lack[0]:.0e}"})


def _cases() -> tuple[Case, ...]:
    """By hand: one row, tables, stacks of tables, then scores that overflow; then odd sizes.

    Imitations are float64, so the scores overflow in float32 and float64 alike or in neither. Only [400, 399] is
    between: it is float64, and parts who adds the maximum (overflow at 800) from who subtracts none.
    """
    rng = np.random.default_rng(4)
    rows = ([1.0, 0.0, -1.0], [0.0, -np.inf, 1.0])
    tables = ([[0.0, 1.0], [2.0, 0.0]], [[[0.0, 1.0], [1.0, 0.0]], [[2.0, 0.0], [0.0, 0.0]]])
    large = (
        *([1000.0, 999.0], [-1000.0, -999.0], [2000.0, 0.0], [1.5e38, 1e38], [1e4, 0.0, -1e4], [-np.inf, -2e4]),
        *([[1000.0, 999.0], [-1000.0, -999.0]], [[2000.0, 0.0], [-np.inf, 1.0]]),
        [[[0.0, 3000.0]], [[-2000.0, -2000.0]]],
    )
    drawn = [rng.standard_normal(shape) * 2 for shape in ((5,), (3, 7), (2, 3, 5), (11, 13))]
    drawn[2][1, 2, 3] = -np.inf
    drawn[3] += 1000.0 * rng.permutation(11)[:, None] - 5000.0
    float32 = (np.asarray(x, np.float32) for x in (rows[0], tables[0], rows[1], tables[1], *large, *drawn))
    return (*(Case((x,), ("x",)) for x in float32), Case((np.asarray([400.0, 399.0]),), ("x",)))


STEP = Step(
    key="3",
    stem="step3_stable_softmax",
    page="lab/3-stable-softmax",
    parts=(
        Part(
            name="softmax",
            model=softmax,
            cases=_cases(),
            flaws=FLAWS,
            recognisers=(
                Recogniser("clipped", clipped),
                Recogniser("not_hidden", not_hidden, among_right=True),
                Recogniser("epsilon", epsilon),
                Recogniser("one_axis_only", one_axis_only),
                Recogniser("two_axes_only", two_axes_only),
                *overflow.recognisers(softmax, OVERFLOWING, FLAWS),
                any_of("no_maximum", softmax, (_without_nan,)),
                any_of("reversed", softmax, (_negative,)),
                any_of("divided", softmax, (_of_quotient,)),
                Recogniser("wrong_axis", wrong_axis),
            ),
        ),
    ),
)
