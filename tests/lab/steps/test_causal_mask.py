"""Step 4: right causal attention passes however it is written, every known mistake is told from every other."""

from itertools import combinations

import numpy as np
import pytest
import torch

from attnbook import reference
from attnbook.lab.exercise import exercise_source, solution_source
from attnbook.lab.flawed_mask import seen
from attnbook.lab.steps.causal_mask import STEP
from attnbook.lab.texts import LANGUAGES, texts
from tests.lab.steps.solutions_causal_mask import RIGHT, WRONG, in_numpy

(PART,) = STEP.parts


@pytest.mark.parametrize("style", RIGHT)
def test_right_in_many_styles(judged, style):
    """Nobody who hides the future is accused, whatever hides it."""
    assert judged.diagnose(STEP, RIGHT[style]) == ()


@pytest.mark.parametrize(("mistakes", "source"), [(names, text) for names, texts in WRONG.items() for text in texts])
def test_mistakes_by_their_names(judged, mistakes, source):
    """Differently written functions with one mistake, or two, are told that one, or both."""
    assert set(judged.diagnose(STEP, source)) == set(mistakes)


def test_every_mistake_is_in_the_table():
    """Each flaw and each recogniser has at least two wrong solutions."""
    names = {*PART.flaws, *(recogniser.name for recogniser in PART.recognisers)}
    assert all(len(WRONG[name,]) >= 2 for name in names)


@pytest.mark.parametrize(("hidden", "value"), [("-10", "-10"), ("-1e4", "-10000"), ("-12.5", "-12.5")])
@pytest.mark.parametrize("hide", ["np.where(keep, s, {})", "s + np.where(keep, 0, {})"])
def test_a_weak_mask_says_its_value(judged, hidden, value, hide):
    """What hides is found by lowering the seen score until both weigh the same; the message names it."""
    lines = ("keep = np.tri(n, m, m - n, dtype=bool)", f"return soft({hide.format(hidden)}) @ v")
    finding = judged.finding(STEP, in_numpy(*lines))
    assert finding.mistakes == ("weak_mask",)
    assert finding.details == {"value": value}
    assert finding.outcome.value[0, 1] > 0 == finding.expected[0, 1]
    assert all(value in texts("4").mistake("weak_mask", lang, **finding.details) for lang in LANGUAGES)


def test_an_unknown_mistake_is_shown_and_not_named(judged):
    """A mask that hides every other key is none of the known mistakes: the smallest failing input is left."""
    finding = judged.finding(STEP, in_numpy("return soft(np.where(np.arange(m) % 2, -np.inf, s)) @ v"))
    assert finding.mistakes == ("wrong",)
    assert finding.case is PART.cases[0]


def test_solution_and_exercise(judged):
    """The solution passes; the exercise says that it is not written."""
    assert judged.diagnose(STEP, solution_source("4")) == ()
    assert judged.diagnose(STEP, exercise_source("4", "ja")) == ("unwritten",)


def test_the_model_is_the_reference():
    """Without a flaw, the model in NumPy is the package's readable truth, in float64."""
    for case in PART.cases:
        q, k, v = (torch.from_numpy(a).double()[None, None] for a in case.arguments)
        expected = reference.attention(q, k, v, is_causal=True)[0, 0].numpy()
        np.testing.assert_allclose(PART.model(*case.arguments), expected, rtol=1e-13, atol=1e-13)


def test_every_flaw_differs_from_every_other():
    """On some case far more than the check's 1e-3, and from the truth on a case of at most four tokens."""

    def results(flaws):
        return [PART.model(*case.arguments, flaws=frozenset(flaws)) for case in PART.cases]

    def differs(a, b):
        return not np.allclose(a, b, rtol=0.02, atol=0.02, equal_nan=True)

    truth = results(())
    made = {flaw: results((flaw,)) for flaw in PART.flaws}
    for a, b in combinations(made, 2):
        assert any(map(differs, made[a], made[b])), f"{a} and {b} return the same"
    for flaw, result in made.items():
        small = [
            differs(x, y) for x, y, case in zip(truth, result, PART.cases, strict=True) if len(case.arguments[1]) < 5
        ]
        assert any(small), f"{flaw} shows on no small case"


def test_pairs_that_are_seen_by_hand():
    """Two queries and four keys, written out."""
    assert seen(2, 4).astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    for flaw, table in {
        "own_hidden": [[1, 1, 0, 0], [1, 1, 1, 0]],
        "future_seen": [[1, 1, 1, 1], [1, 1, 1, 1]],
        "only_future": [[0, 0, 0, 1], [0, 0, 0, 0]],
        "future_and_self": [[0, 0, 1, 1], [0, 0, 0, 1]],
        "top_left": [[1, 0, 0, 0], [1, 1, 0, 0]],
        "transposed": [[1, 1, 1, 1], [1, 1, 1, 1]],
        "shifted_away": [[0, 0, 0, 0], [0, 0, 0, 0]],
    }.items():
        assert seen(2, 4, frozenset({flaw})).astype(int).tolist() == table, flaw
