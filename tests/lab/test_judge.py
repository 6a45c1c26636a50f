"""The judge: right within a tolerance that the inputs decide, wrong otherwise, mistakes in the order of their worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnbook.lab.judge import imitated, right, tolerance, truth
from attnbook.lab.step import Array, Case, Outcome, Part, Recogniser, Seen, Step
from tests.lab.run import Desk


def mean(x: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
    """The mean of each row; flaws: columns, total (no division), doubled."""
    x = np.asarray(x, np.float64)
    axis = 0 if "columns" in flaws else 1
    found = x.sum(axis) if "total" in flaws else x.mean(axis)
    return np.asarray(found * (2 if "doubled" in flaws else 1))


def case(*rows: list[float]) -> Case:
    return Case((np.array(rows, np.float32),), ("x",))


CASES = (case([1.0]), case([1.0, 3.0]), case([1.0, 3.0], [5.0, 8.0]), case([1.5, 3.0, 2.0], [7.0, 0.5, 1.0]))
PART = Part("mean", mean, CASES, flaws=("columns", "total", "doubled"))
STEP = Step("1", "mean", (PART,), "lab/1-three-lines")

HEAD = "import numpy as np\ndef mean(x):\n"


@pytest.mark.parametrize(
    ("body", "mistakes"),
    [
        ("return x.mean(1)", ()),
        ("return x.mean(0)", ("columns",)),
        ("return x.sum(1)", ("total",)),
        ("return x.sum(0)", ("columns", "total")),
        ("return x.mean(1) + 1", ("wrong",)),
        ("return x.mean(1)[:, None]", ("shape",)),
        ("return x.mean()", ("shape",)),
        ("x -= x.min()\nreturn x.mean(1)", ("changed",)),
        ("y = x.mean(1)\nx[:] = 0\nreturn y", ("changed",)),
        ("x[:] = 2 * x\nreturn x.mean(1)", ("doubled",)),  # the numbers say more than the change
        ("return x.mean(1) > 1", ("kind",)),
        ("return None if len(x) > 1 else x.mean(1)", ("none",)),
        ("return x.mean(1) if len(x) == 1 else x.mean(2)", ("raised",)),
        ("return np.full(len(x), np.nan)", ("wrong",)),
        ("return np.full(len(x), np.inf)", ("wrong",)),
        ("kept = mean.__dict__.setdefault(x.shape, 0 * x[:, 0])\nkept += x.mean(1)\nreturn kept", ("remembers",)),
        ("mean.calls = getattr(mean, 'calls', 0) + 1\nreturn x.mean(1)", ()),  # what it keeps is not in the answer
    ],
)
def test_one_explanation_is_found_for_all_that_the_function_does(judged: Desk, body: str, mistakes: tuple[str, ...]):
    source = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    assert judged.diagnose(STEP, source, PART) == mistakes


def test_two_flaws_that_cancel_explain_nothing(judged: Desk):
    """Whole numbers in place of booleans are of the wrong kind, though one too many and one too few give the same."""

    def upto(n: int, *, flaws: frozenset[str] = frozenset()) -> Array:
        return np.arange(5) < n + ("more" in flaws) - ("fewer" in flaws)

    part = Part("upto", upto, (Case((2,), ("n",)), Case((3,), ("n",))), flaws=("more", "fewer"))
    source = "import numpy as np\ndef upto(n):\n    return (np.arange(5) < n{}).astype(int)\n"
    assert judged.diagnose(replace(STEP, parts=(part,)), source.format(""), part) == ("kind",)
    assert judged.diagnose(replace(STEP, parts=(part,)), source.format(" + 1"), part) == ("more",)


def test_a_mistake_must_explain_every_case_not_only_one(judged: Desk):
    """Right for one row, and the columns' means for two rows of two: no single mistake does that everywhere."""
    source = HEAD + "    return x.mean(0) if x.shape == (2, 2) else x.mean(1)\n"
    assert judged.diagnose(STEP, source, PART) == ("wrong",)


def test_the_first_case_that_fails_is_shown(judged: Desk):
    finding = judged.finding(STEP, HEAD + "    return x.sum(1)\n", PART)
    assert finding is not None
    assert finding.case is CASES[1]
    assert finding.expected is not None
    assert finding.expected.tolist() == [2.0]
    assert finding.outcome is not None
    assert finding.outcome.value is not None
    assert finding.outcome.value.tolist() == [4.0]


def test_no_further_case_is_tried_after_an_endless_one(judged: Desk):
    part = replace(PART, seconds=0.2)
    finding = judged.finding(STEP, HEAD + "    while True: pass\n", part)
    assert finding is not None
    assert (finding.mistakes, finding.case) == (("endless",), CASES[0])


def test_many_slow_calls_are_one_endless_one(judged: Desk):
    part = replace(PART, seconds=0.1, cases=CASES * 5)
    finding = judged.finding(STEP, HEAD + "    import time\n    time.sleep(0.09)\n    return x.mean(1)\n", part)
    assert finding is not None
    assert finding.mistakes == ("endless",)


def test_a_second_right_answer_is_right_and_its_imitations_are_known(judged: Desk):
    def median(x: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
        return np.median(np.asarray(x, np.float64), axis=0 if "columns" in flaws else 1)

    part = replace(PART, also=(median,))
    assert judged.diagnose(STEP, HEAD + "    return np.median(x, 1)\n", part) == ()
    assert judged.diagnose(STEP, HEAD + "    return np.median(x, 0)\n", part) == ("columns",)
    assert judged.diagnose(STEP, HEAD + "    return x.max(1)\n", part) == ("wrong",)


@pytest.mark.parametrize(("last", "mistakes"), [(False, ("seen",)), (True, ("total",))])
def test_a_recogniser_comes_before_the_imitations_or_after(judged: Desk, last: bool, mistakes: tuple[str, ...]):
    recogniser = Recogniser("seen", lambda reader: Seen(CASES[0], np.zeros(1), reader.outcomes[0]), last=last)
    part = replace(PART, recognisers=(recogniser,))
    assert judged.diagnose(STEP, HEAD + "    return x.sum(1)\n", part) == mistakes
    assert judged.diagnose(STEP, HEAD + "    return x.mean(1)\n", part) == ()  # who is right is not even looked at


def test_a_recogniser_may_look_at_right_numbers_where_it_says_so(judged: Desk):
    recogniser = Recogniser("seen", lambda reader: Seen(CASES[0], np.zeros(1), reader.outcomes[0]), among_right=True)
    part = replace(PART, recognisers=(recogniser,))
    assert judged.diagnose(STEP, HEAD + "    return x.mean(1)\n", part) == ("seen",)


@pytest.mark.parametrize("seed", range(5))
def test_the_tolerance_takes_a_float32_sum_and_refuses_one_of_half_precision(seed: int):
    """Baselines of two precisions: an honest sum in the input's, and garbage that is only a little wrong."""
    x = np.random.default_rng(seed).standard_normal((7, 101)).astype(np.float32)
    one = Case((x,), ("x",))
    wanted = truth(mean, one)
    assert right(Outcome(np.float64(np.add.reduce(x, 1) / np.float32(101)), "float32"), mean, one)
    assert right(Outcome(wanted, "float64"), mean, one)
    assert not right(Outcome(np.float64(x.astype(np.float16).mean(1)), "float16"), mean, one)
    for garbage in (wanted * (1 + 1e-4), wanted + 1e-4, wanted[::-1], np.zeros(7), wanted * np.nan, wanted[:, None]):
        assert not right(Outcome(garbage, "float64"), mean, one)


def test_the_tolerance_follows_the_precision_of_the_arguments():
    x = np.random.default_rng(0).standard_normal((3, 5))
    allowed = [tolerance(mean, Case((x.astype(dtype),), ("x",))) for dtype in (np.float64, np.float32, np.float16)]
    assert allowed[0] < 1e-14 < 1e-8 < allowed[1] < 1e-5 < allowed[2] < 0.1


def test_places_of_nan_and_infinity_must_be_the_expected_ones():
    def logs(x: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
        return np.log(np.asarray(x, np.float64))

    one = Case((np.array([0.0, 1.0], np.float32),), ("x",))
    for value, verdict in (
        ([-np.inf, 0.0], True), ([np.inf, 0.0], False), ([np.nan, 0.0], False), ([-1e30, 0.0], False),
    ):  # fmt: skip
        assert right(Outcome(np.array(value), "float64"), logs, one) is verdict


@pytest.mark.parametrize(
    ("wanted", "value", "verdict"),
    [
        (True, np.array(True), True), (True, np.array(1), True), (True, np.array(False), False),
        (7, np.array(7), True), (7, np.array(7.0), True), (7, np.array(7.5), False),
        (7.0, np.array(7), True), (7.0, np.array(7 + 0j), False),
        ([True, False], np.array([True, False]), True), ([True, False], np.array([1.0, 0.0]), False),
        ([1.0, 2.0], np.array([1, 2]), False),
    ],
)  # fmt: skip
def test_kinds_of_numbers(wanted: object, value: Array, verdict: bool):
    """One number may be a whole one; a table of whole numbers has lost its fractions; 1 is True, one alone."""
    one = Case((), ())
    assert right(Outcome(value, "any"), lambda flaws=frozenset(): np.asarray(wanted), one) is verdict


def test_a_flaw_that_cannot_take_these_shapes_is_not_the_one():
    def picky(x: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
        if "square" in flaws and x.shape[0] != x.shape[1]:
            raise ValueError("not square")
        return mean(x)

    part = Part("mean", picky, CASES, flaws=("square",))
    outcomes = [Outcome(truth(picky, one), "float64") for one in CASES]
    assert imitated(part, picky, outcomes) is None
