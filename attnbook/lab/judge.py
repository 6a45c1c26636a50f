"""Is the reader's function right, and if not, which mistake explains everything that it does?

Right is whatever returns the right numbers on every case, once more when a case comes back, and leaves its arguments as
they were: then nothing is diagnosed, so that nobody who is right can be accused. Only a recogniser `among_right` is
asked all the same, for a promise of the exercise's text that no tolerance can hold, such as a weight of exactly 0.
Otherwise, in this order: calls that returned nothing to compare, the step's recognisers, its imitations alone and in
pairs, its last recognisers, arguments changed in place, the wrong shape, kind or precision of numbers; and where no
mistake is known, the smallest input that fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

import numpy as np

from attnbook.lab.imitated import CLOSE, near
from attnbook.lab.process import Process
from attnbook.lab.step import Argument, Array, Case, Failure, Model, Outcome, Part

BUDGET = 5.0
"""All calls of one function together may take so many times the limit of one."""

ENDS = ("endless", "memory", "exited", "died", "unwritten", "unwritten_import", "missing", "unloadable", "unavailable")
"""Failures after which no further case is tried."""

LOW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Finding:
    """What is wrong with one function: the mistakes that together explain it, and the smallest input that shows them.

    mistakes: names of texts; several are made at once. case, expected, outcome: None where no call was made.
    """

    mistakes: tuple[str, ...]
    case: Case | None = None
    expected: Array | None = None
    outcome: Outcome | None = None
    details: Mapping[str, str] = field(default_factory=dict)


class Called:
    """The reader's function on all cases of a part; recognisers may call it again."""

    def __init__(self, process: Process, part: Part) -> None:
        self._process = process
        self._part = part
        self._left = BUDGET * part.seconds
        self.cases: Sequence[Case] = part.cases
        outcomes: list[Outcome] = []
        for case in part.cases:
            outcomes.append(self.call(*case.arguments))
            failure = outcomes[-1].failure
            if failure is not None and failure.kind in ENDS:
                break
        self.outcomes: Sequence[Outcome] = outcomes

    def call(self, *arguments: Argument) -> Outcome:
        """Call the function once more, within what is left of the part's time."""
        if self._left <= 0:
            return Outcome(failure=Failure("endless", f"{BUDGET * self._part.seconds:g}"))
        part = self._part
        outcome = self._process.call(part.name, arguments, seconds=min(part.seconds, self._left), driver=part.driver)
        self._left -= outcome.seconds
        return outcome


def judge(process: Process, part: Part) -> Finding | None:
    """What is wrong with the function of that name in the process; None if nothing is."""
    reader = Called(process, part)
    # Of several right answers the one that the function agrees with most often is the one that it means.
    model, wrong = min(((m, _wrong(reader, m)) for m in (part.model, *part.also)), key=lambda pair: len(pair[1]))
    expected = [truth(model, case) for case in part.cases]
    seen = list(zip(part.cases, expected, reader.outcomes, strict=False))

    def finding(i: int, *mistakes: str, **details: str) -> Finding:
        return Finding(mistakes, *seen[i], details)

    for i in wrong:
        failure = reader.outcomes[i].failure
        if failure is not None and failure.kind != "raised":
            return finding(i, failure.kind, **_told(failure))
    if (shown := recognised(part, reader, last=False, among_right=not wrong)) is not None:
        return shown
    changed = next((i for i, outcome in enumerate(reader.outcomes) if outcome.changed), None)
    if not wrong and changed is None:
        return _again(reader, part, model)
    for other in (model, *(m for m in (part.model, *part.also) if m is not model)) if wrong else ():
        if (flaws := imitated(part, other, reader.outcomes)) is not None:
            return finding(wrong[0], *flaws)
    if wrong and (shown := recognised(part, reader, last=True, among_right=False)) is not None:
        return shown
    for i in wrong:
        if (failure := reader.outcomes[i].failure) is not None:
            return finding(i, failure.kind, **_told(failure))
    if changed is not None:
        place = reader.outcomes[changed].changed[0]
        return finding(changed, "changed", argument=part.cases[changed].names[place])
    return finding(wrong[0], *_form(part.cases[wrong[0]], expected[wrong[0]], reader.outcomes[wrong[0]]))


def _again(reader: Called, part: Part, model: Model) -> Finding | None:
    """Who was right is right once more: what a function keeps from call to call shows when a case comes back."""
    if part.driver is not None:
        return None  # it calls the function more than once, and may take long
    case = part.cases[0]
    outcome = reader.call(*case.arguments)
    slow = outcome.failure is not None and outcome.failure.kind == "endless"  # no time was left, and all was right
    return None if slow or right(outcome, model, case) else Finding(("remembers",), case, truth(model, case), outcome)


def recognised(part: Part, reader: Called, *, last: bool, among_right: bool) -> Finding | None:
    """What the first of the part's recognisers that sees its mistake has seen."""
    for recogniser in part.recognisers:
        if recogniser.last is last and (recogniser.among_right or not among_right):
            seen = recogniser.see(reader)
            if seen is not None:
                return Finding((recogniser.name,), seen.case, seen.expected, seen.outcome, seen.details)
    return None


def _told(failure: Failure) -> dict[str, str]:
    line = {} if failure.line is None else {"line": str(failure.line)}
    return {"text": failure.text, **line}


def _form(case: Case, expected: Array, outcome: Outcome) -> tuple[str]:
    """What can be said of wrong numbers by their form alone."""
    value = outcome.value
    assert value is not None
    if value.shape != expected.shape:
        return ("shape",)
    if value.dtype.kind != expected.dtype.kind and (
        value.dtype.kind in "bc" or (expected.dtype.kind == "b" and value.ndim)
    ):
        return ("kind",)
    if expected.dtype.kind == "f" and value.dtype.kind == "i" and value.ndim and outcome.dtype != "int":
        return ("kind",)
    if expected.dtype.kind == "f":
        scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
        if outcome.dtype in LOW and near(value, expected, 0.02 * scale):
            return ("low_precision",)
        double = any(isinstance(a, np.ndarray) and a.dtype == np.float64 for a in case.arguments)
        if double and outcome.dtype == "float32" and near(value, expected, 1e-5 * scale):
            return ("low_precision",)
    return ("wrong",)


def _wrong(reader: Called, model: Model) -> list[int]:
    """The cases that ended in a failure or in other numbers than the model's."""
    return [
        i for i, outcome in enumerate(reader.outcomes)
        if outcome.failure is not None or not right(outcome, model, reader.cases[i])
    ]  # fmt: skip


def right(outcome: Outcome, model: Model, case: Case) -> bool:
    """Whether the outcome's value is the expected one: its shape, its kind of number, and close enough."""
    value, expected = outcome.value, truth(model, case)
    if value is None or value.shape != expected.shape:
        return False
    if expected.dtype.kind == "b" and expected.ndim:
        return value.dtype.kind == "b" and np.array_equal(value, expected)
    if value.dtype.kind in "cb" and value.dtype.kind != expected.dtype.kind:
        return False
    if expected.dtype.kind in "bi":
        return np.array_equal(value, expected)
    # One number may be a whole one, as a difference of 0, and so may Python's in a list; an array has lost fractions.
    whole = value.ndim == 0 or outcome.dtype == "int"
    return value.dtype.kind in ("fi" if whole else "f") and near(value, expected, tolerance(model, case))


def tolerance(model: Model, case: Case) -> float:
    """How far a right function may be off in this case: eight times what rounding its arguments moves the truth.

    Each floating argument is moved by half a unit in its last place, up or down: three times at random, and neighbours
    in turn, since two large scores that happen to move alike change no weight. Rounding within the function is allowed
    for by as many units of the largest value. float32 where no argument is a floating array: functions of plain numbers
    may use torch, whose numbers are float32.
    """
    arrays = [a for a in case.arguments if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    eps = max((float(np.finfo(a.dtype).eps) for a in arrays), default=float(np.finfo(np.float32).eps))
    rng = np.random.default_rng(0)
    expected = truth(model, case)
    finite = np.isfinite(expected)
    moved = 0.0
    up_and_down = np.asarray([1.0, -1.0])
    for draw in range(4):
        shaken = [
            a * (1 + eps / 2 * (rng.choice(up_and_down, a.shape) if draw else np.resize(up_and_down, a.shape)))
            if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
            for a in case.arguments
        ]  # fmt: skip
        other = truth(model, Case(tuple(shaken), case.names))
        difference = np.abs(other[finite] - expected[finite])
        moved = max(moved, float(difference[np.isfinite(difference)].max(initial=0.0)))
    return 8 * (moved + eps * float(np.abs(expected[finite]).max(initial=0.0)))


def imitated(part: Part, model: Model, outcomes: Sequence[Outcome]) -> tuple[str, ...] | None:
    """The flaws, one or two of the part's, with which the model does on every case what the reader's function did.

    Two that cancel, such as one key too many and one too few, are no mistake: they explain nothing.
    """
    if any(outcome.value is None for outcome in outcomes):
        return None
    singles: Iterator[tuple[str, ...]] = ((flaw,) for flaw in part.flaws)
    for flaws in chain(singles, combinations(part.flaws, 2)):
        if all(_imitates(model, flaws, *pair) for pair in zip(part.cases, outcomes, strict=False)) and not all(
            _imitates(model, flaws, case, Outcome(truth(model, case))) for case in part.cases
        ):
            return flaws
    return None


def _imitates(model: Model, flaws: tuple[str, ...], case: Case, outcome: Outcome) -> bool:
    value = outcome.value
    try:
        with np.errstate(all="ignore"):
            same = np.asarray(model(*case.arguments, flaws=frozenset(flaws)))
    except (ValueError, IndexError, ZeroDivisionError):
        return False  # with this flaw, these shapes do not fit; the reader's function returned something
    if value is None or value.shape != same.shape:
        return False
    if same.dtype.kind in "bi" or value.dtype.kind != "f":
        return np.array_equal(value, same)
    scale = float(np.abs(same[np.isfinite(same)]).max(initial=0.0))
    return near(value, same, CLOSE * scale + 1e-30)


def truth(model: Model, case: Case) -> Array:
    """What a right function returns in this case."""
    with np.errstate(all="ignore"):
        return np.asarray(model(*case.arguments))
