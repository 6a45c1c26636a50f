"""Step 5: attention that knows positions, and how far a function is from not knowing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from attnbook.lab.flawed_positions import (
    ADDING,
    COMPARING,
    along_each_row,
    attention_with_positions,
    plus_all_rows,
    reordered_gap,
    running_sum,
    times_row_number,
)
from attnbook.lab.step import Array, Case, Given, Model, Part, Reader, Recogniser, Seen, Step

PLACED: Final = ("x", "p")
GAP: Final = ("fn", "x", "order")


def _placed_cases() -> tuple[Case, ...]:
    """From two tokens to odd sizes; four components make √d a whole number."""
    rng = np.random.default_rng(5)
    by_hand: tuple[tuple[object, object], ...] = (
        ([[1.0], [0.0]], [[1.0], [-1.0]]),
        ([[1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 0.0, 0.0]], [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]),
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]),  # twins, told apart by place
    )
    drawn = (
        (0.5 * rng.standard_normal((t, d)), 0.5 * rng.standard_normal((t, d))) for t, d in ((3, 5), (7, 2), (13, 17))
    )
    return tuple(Case(tuple(np.asarray(a, np.float32) for a in case), PLACED) for case in (*by_hand, *drawn))


def _gap_cases() -> tuple[Case, ...]:
    """Functions that know the order and one that does not; three rows in a circle are no swap: there and back differ.

    Never more rows than columns, so that who permutes columns is told so; and one function knows the order of columns,
    so that who returns 0 is not. What does not know the order of rows gets integers: its gap is 0 exactly. Once the
    largest difference is in the first row and the last column.
    """
    rng = np.random.default_rng(55)
    square = [[1.0, 0.0, 2.0], [5.0, 3.0, 0.0], [2.0, 7.0, 4.0]]
    circle = [1, 2, 0]
    tokens = rng.integers(-4, 5, (5, 7))
    return (
        _gap(plus_all_rows, [[1.0, 2.0], [4.0, 0.0]], [1, 0]),
        _gap(running_sum, [[1.0, 2.0], [4.0, 0.0]], [1, 0]),
        _gap(plus_all_rows, square, circle),
        _gap(times_row_number, square, circle),
        _gap(running_sum, square, circle),
        _gap(running_sum, [[0.0, 1.0, 9.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [1, 0, 2]),
        _gap(along_each_row, square, circle),
        _gap(plus_all_rows, tokens, [3, 0, 4, 2, 1]),
        _gap(running_sum, rng.standard_normal((5, 7)), [3, 0, 4, 2, 1]),
        _gap(times_row_number, rng.standard_normal((11, 13)), rng.permutation(11)),
    )


def _gap(fn: Callable[[Array], Array], x: object, order: object) -> Case:
    given = Given(f"{fn.__module__}:{fn.__name__}")
    return Case((given, np.asarray(x, np.float32), np.asarray(order, np.int64)), GAP)


def _verdict(reader: Reader) -> Seen | None:
    """A gap is a number; whoever only says whether there is one returns True and False."""
    if not reader.outcomes or any(outcome.dtype != "bool" for outcome in reader.outcomes):
        return None
    model: Model = reordered_gap
    for case, outcome in zip(reader.cases, reader.outcomes, strict=False):
        expected = np.asarray(model(*case.arguments))
        if expected > 0:
            return Seen(case, expected, outcome)
    return None


STEP = Step(
    key="5",
    stem="step5_positions",
    page="lab/5-positions",
    parts=(
        Part(
            name="attention_with_positions",
            model=attention_with_positions,
            cases=_placed_cases(),
            flaws=(*ADDING, "no_scale", "scale_by_d", "scale_up", "wrong_axis", "whole_softmax", "no_softmax"),
        ),
        Part(
            name="reordered_gap",
            model=reordered_gap,
            cases=_gap_cases(),
            recognisers=(Recogniser("returns_bool", _verdict),),
            flaws=COMPARING,
        ),
    ),
)
