"""Step 5: attention with positions and the gap of a permutation, right in any style, and wrong in known ways."""

from itertools import combinations

import numpy as np
import pytest
import torch

from attnbook.lab import flawed_positions
from attnbook.lab.exercise import exercise_source, solution, solution_source
from attnbook.lab.imitated import CLOSE
from attnbook.lab.steps.positions import STEP
from attnbook.lab.texts import LANGUAGES, texts
from attnbook.reference import attention
from tests.lab.steps.solutions_positions import GAP_RIGHT, GAP_WRONG, PLACED_RIGHT, PLACED_WRONG, gap

PLACED, GAP = STEP.parts
BOTH = [pytest.param(PLACED, id="placed"), pytest.param(GAP, id="gap")]
WRONG = {PLACED.name: PLACED_WRONG, GAP.name: GAP_WRONG}


@pytest.mark.parametrize(
    ("part", "source"),
    [
        pytest.param(part, source, id=style)
        for part, right in ((PLACED, PLACED_RIGHT), (GAP, GAP_RIGHT))
        for style, source in right.items()
    ],
)
def test_a_right_solution_is_accepted(judged, part, source):
    """Whatever its style, its library, its names and its dtype."""
    assert judged.diagnose(STEP, source, part) == ()


@pytest.mark.parametrize(
    ("part", "names", "source"),
    [
        pytest.param(part, names, source, id=f"{names}-{i}")
        for part in STEP.parts
        for names, sources in WRONG[part.name].items()
        for i, source in enumerate(sources)
    ],
)
def test_a_mistake_is_named(judged, part, names, source):
    """Each in at least two ways of writing it; two mistakes at once are both named."""
    assert set(judged.diagnose(STEP, source, part)) == set(names.split())


@pytest.mark.parametrize("part", BOTH)
def test_every_mistake_has_two_solutions_and_a_text(part):
    """None is left out of the table; its text speaks three languages and leads to the book."""
    for name in (*part.flaws, *(recogniser.name for recogniser in part.recognisers)):
        assert len(WRONG[part.name][name]) >= 2, name
        assert texts(5).page(name)
        assert len({texts(5).mistake(name, lang) for lang in LANGUAGES}) == 3


def test_a_gap_that_is_not_the_largest_is_shown_on_the_smallest_input(judged):
    """A verdict where a number is asked for is shown where there is a gap to tell."""
    finding = judged.finding(STEP, gap("return np.allclose(fn(x[order]), fn(x)[order])"), GAP)
    assert finding.expected > 0
    assert finding.case is GAP.cases[1]


def test_solution_and_exercise(judged):
    """The solution passes; neither function of the exercise is written."""
    for part in STEP.parts:
        assert judged.diagnose(STEP, solution_source("5"), part) == ()
        assert judged.diagnose(STEP, exercise_source("5", "ko"), part) == ("unwritten",)


def test_the_model_is_the_reference():
    """Queries and keys with positions, values without, in float64."""
    for case in PLACED.cases:
        x, p = (torch.from_numpy(a).double()[None, None] for a in case.arguments)
        expected = attention(x + p, x + p, x)[0, 0].numpy()
        np.testing.assert_allclose(PLACED.model(*case.arguments), expected, rtol=1e-13, atol=1e-13)


def test_the_gap_by_hand():
    """Running sums of 1 and 4 are 1 and 5; of 4 and 1 they are 4 and 5, where 5 and 1 were to come."""
    model = flawed_positions.reordered_gap
    x, swap = np.array([[1.0], [4.0]]), np.array([1, 0])
    assert model(flawed_positions.running_sum, x, swap) == 4
    assert model(flawed_positions.running_sum, x, swap, flaws=frozenset({"signed"})) == 4
    assert model(flawed_positions.running_sum, x, swap, flaws=frozenset({"mean"})) == 2.5
    assert model(flawed_positions.plus_all_rows, x, swap) == 0
    assert model(flawed_positions.times_row_number, x, swap) == 4


@pytest.mark.parametrize("name", ["running_sum", "times_row_number", "plus_all_rows"])
def test_a_given_function_takes_what_the_reader_has(name):
    """Arrays become arrays, tensors tensors, of the same dtype and with the same numbers."""
    fn = getattr(flawed_positions, name)
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    made, tensor = fn(array), fn(torch.from_numpy(array))
    assert (made.dtype, tensor.dtype) == (np.float32, torch.float32)
    assert tensor.tolist() == made.tolist() == np.asarray(fn(array.tolist())).tolist()


def test_a_gap_of_nothing_is_nothing():
    """Where the function knows no order, a right answer is 0 and not nearly 0, in float32 as well."""
    _, measured = solution(5)
    for case in GAP.cases:
        fn, x, order = case.arguments
        if "plus_all_rows" in str(fn):
            assert GAP.model(*case.arguments) == measured(fn, x, order) == 0


def differ(a, b):
    """By far more than what counts as the same."""
    return bool(np.abs(np.subtract(a, b)).max() > 10 * CLOSE * np.abs(b).max())


@pytest.mark.parametrize("part", BOTH)
def test_no_two_mistakes_look_alike(part):
    """On some case they differ; and from what is right on one of at most three tokens."""
    found = {
        flaw: [part.model(*case.arguments, flaws=frozenset({flaw} - {"right"})) for case in part.cases]
        for flaw in ("right", *part.flaws)
    }
    for one, other in combinations(found, 2):
        assert any(differ(a, b) for a, b in zip(found[one], found[other], strict=True)), (one, other)
    small = [i for i, case in enumerate(part.cases) if len(case.arguments[1]) <= 3 and case.arguments[1].size <= 9]
    for flaw in part.flaws:
        assert any(differ(found[flaw][i], found["right"][i]) for i in small), flaw
