"""Exercise of chapter 4: two averages, each with its log-sum-exp, made into the average over both sets of keys."""

from __future__ import annotations

import numpy as np

from attnbook.lab.imitated import agrees
from attnbook.lab.overflow import raised_by_numbers
from attnbook.lab.seeing import seen, which
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step

NAMES = ("out_a", "lse_a", "out_b", "lse_b")
FLAWS = ("empty_is_nan", "plain_average", "swapped", "lse_as_weight", "base_two", "sum_of_both")
INF = np.inf


def model(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
    """From out (t, d) and lse (t,) of each side: (t, d), 0 for a row that no side has a key for."""
    outs = np.stack([np.asarray(out, np.float64) for out in (out_a, out_b)])  # (2, t, d)
    share = _shares(np.stack([np.asarray(lse, np.float64) for lse in (lse_a, lse_b)]), flaws)
    return np.asarray(((share[::-1] if "swapped" in flaws else share)[..., None] * outs).sum(0))


def _shares(lse: Array, flaws: frozenset[str]) -> Array:
    """The weight of each side: lse (2, t) -> (2, t), which add to 1, or to 0 where both are −inf."""
    if "plain_average" in flaws:
        return np.full_like(lse, 0.5)
    if "sum_of_both" in flaws:
        return np.ones_like(lse)
    with np.errstate(invalid="ignore"):
        if "lse_as_weight" in flaws:
            return np.asarray(lse / lse.sum(0))
        top = lse.max(0)
        if "empty_is_nan" not in flaws:
            top = np.where(top == -INF, 0.0, top)
        e = np.exp2(lse - top) if "base_two" in flaws else np.exp(lse - top)
        return np.asarray(e / np.where(e.sum(0) == 0, 1.0, e.sum(0)))


def _rows(out_a: list[float], lse_a: list[float], out_b: list[float], lse_b: list[float]) -> Case:
    """A case of one component a row."""
    columns = (np.asarray(x, np.float32) for x in (out_a, lse_a, out_b, lse_b))
    return Case(tuple(x[:, None] if i % 2 == 0 else x for i, x in enumerate(columns)), NAMES)


ORDINARY = (
    _rows([1], [0], [3], [0]),
    _rows([1], [1], [3], [0]),
    _rows([0], [-INF], [3], [2]),
    _rows([1], [-1], [0], [-INF]),
)
NOBODY = _rows([0], [-INF], [0], [-INF])
FAR = (
    _rows([1], [1000], [3], [999]),
    _rows([1], [-1000], [3], [-1001]),
    _rows([0], [-INF], [3], [-20000]),  # −inf is less than any number
)
MIXED = _rows([1, 1], [1000, -1000], [3, 3], [1001, -1001])


def _drawn() -> Case:
    rng = np.random.default_rng(4)
    drawn = (rng.standard_normal((7, 5)), 3 * rng.standard_normal(7)) * 2
    return Case(tuple(np.asarray(x, np.float32) for x in drawn), NAMES)


CASES = (*ORDINARY, NOBODY, *FAR, MIXED, _drawn())
TOLD = tuple(model(*case.arguments) for case in CASES)  # type: ignore[arg-type]
"""The right answers, one a case."""


def _right(reader: Reader) -> dict[int, bool] | None:
    """Which cases the reader's function has right, by their numbers, without the one where nobody sees a key."""
    found = which(reader, TOLD)
    return None if found is None else {i: right for i, right in enumerate(found) if CASES[i] is not NOBODY}


def _no_maximum(reader: Reader) -> Seen | None:
    """Right while exp can take the lse as it is; for a large one, or a very small one, no number."""
    right = _right(reader)
    far = [i for i, case in enumerate(CASES) if any(case is other for other in FAR)]
    if right is None or all(right[i] for i in far) or not all(right[i] for i in _ordinary()):
        return None
    lost = [i for i in far if _no_number(reader, i)]
    return seen(reader, lost[0], TOLD[lost[0]]) if lost else None


def _maximum_over_all(reader: Reader) -> Seen | None:
    """Right with one row, however large its lse; wrong where another row's is larger by far."""
    right = _right(reader)
    i = next(i for i, case in enumerate(CASES) if case is MIXED)
    if right is None or [case for case, fine in right.items() if not fine] != [i]:
        return None
    value = reader.outcomes[i].value
    assert value is not None  # a row of it is right
    return seen(reader, i, TOLD[i]) if np.allclose(value[0], TOLD[i][0], rtol=1e-3) else None


def _not_divided(reader: Reader) -> Seen | None:
    """Shares in the right proportion, e : 1 for one more in lse, that do not add to 1."""
    one, none = _rows([1], [2], [0], [1]), _rows([0], [2], [1], [1])
    a, b = (reader.call(*case.arguments) for case in (one, none))
    if a.value is None or b.value is None or a.value.shape != (1, 1) or b.value.shape != (1, 1):
        return None
    if not agrees(a, b.value * np.e) or abs(float(a.value[0, 0] + b.value[0, 0]) - 1) < 1e-3:
        return None
    return seen(reader, 0, TOLD[0]) if reader.outcomes and not agrees(reader.outcomes[0], TOLD[0]) else None


def _larger_wins(reader: Reader) -> Seen | None:
    """The side with the larger lse alone; whichever where both are equal."""
    told = []
    for case in CASES:
        out_a, lse_a, out_b, lse_b = (np.asarray(x, np.float64) for x in case.arguments)
        told.append(np.where((lse_a > lse_b)[:, None], out_a, out_b))
    found = which(reader, told)
    return seen(reader, 1, TOLD[1]) if found is not None and all(found[1:]) else None


def _ordinary() -> list[int]:
    """The cases whose lse are of ordinary size, and not −inf on both sides."""
    return [*range(len(ORDINARY)), len(CASES) - 1]


def _no_number(reader: Reader, case: int) -> bool:
    """NaN or inf; plain Python raises instead."""
    value = reader.outcomes[case].value
    if value is None:
        return raised_by_numbers(reader.outcomes[case].failure)
    return value.dtype.kind == "f" and not np.isfinite(value).all()


STEP = Step(
    key="chapter-4",
    stem="exercise04_merge",
    page="04-softmax",
    folder="exercises",
    parts=(
        Part(
            name="merge",
            model=model,
            cases=CASES,
            flaws=FLAWS,
            recognisers=(
                Recogniser("no_maximum", _no_maximum),
                Recogniser("maximum_over_all", _maximum_over_all),
                Recogniser("not_divided", _not_divided),
                Recogniser("larger_wins", _larger_wins),
            ),
        ),
    ),
)
