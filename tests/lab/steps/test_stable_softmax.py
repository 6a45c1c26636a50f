"""Step 3: every mistake is told from every other, in whatever way it is written, and who is right has passed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from attnbook.lab.imitated import agrees
from attnbook.lab.step import Outcome
from attnbook.lab.steps import step
from attnbook.lab.texts import LANGUAGES, texts
from attnbook.reference import softmax
from tests.lab.run import Desk
from tests.lab.steps import solutions_stable_softmax as written

STEP = step(3)
(PART,) = STEP.parts
WRONG = [
    *(((name,), source) for name, sources in written.WRONG.items() for source in sources),
    *written.BOTH.items(),
]


@pytest.mark.parametrize(("names", "source"), WRONG, ids=[" and ".join(names) for names, _ in WRONG])
def test_a_mistake_is_named(judged: Desk, names, source):
    """By what the function does, also where plain Python raises instead of returning inf and NaN."""
    assert set(judged.diagnose(STEP, source)) == set(names)


@pytest.mark.parametrize("source", written.RIGHT.values(), ids=written.RIGHT)
def test_who_is_right_has_passed(judged: Desk, source):
    """In every style: loops, recursion, einsum, torch, other names, float64, lists."""
    assert judged.diagnose(STEP, source) == ()


def test_every_mistake_has_two_solutions_and_a_text():
    """None is left out of the table of wrong solutions; its text speaks three languages and leads to the book."""
    for name in {*PART.flaws, *(recogniser.name for recogniser in PART.recognisers)}:
        assert len(written.WRONG[name]) >= 2, name
        assert all(texts(3).mistake(name, lang, epsilon="1e-06") for lang in LANGUAGES)
        assert texts(3).page(name)


def test_the_epsilon_is_told(judged: Desk):
    """Its size is measured from what the weights lack of 1."""
    finding = judged.finding(STEP, written.WRONG["epsilon"][0])
    assert finding is not None
    assert finding.details == {"epsilon": "1e-06"}


def test_the_truth_is_the_reference():
    """Without flaws the model is what the book's own softmax gives in float64."""
    for case in PART.cases:
        expected = softmax(torch.from_numpy(case.arguments[0]).double()).numpy()
        np.testing.assert_allclose(PART.model(*case.arguments), expected, rtol=1e-12, atol=1e-15)


def test_mistakes_differ():
    """Any two flaws, and each of them and the truth, are far apart in some case; each shows in a small one."""
    made = {flaw: [PART.model(*case.arguments, flaws=frozenset({flaw})) for case in PART.cases] for flaw in PART.flaws}
    made[""] = [PART.model(*case.arguments) for case in PART.cases]
    for one, other in itertools.combinations(made, 2):
        assert not all(map(_alike, made[one], made[other])), (one, other)
    for flaw in PART.flaws:
        first = next(i for i, pair in enumerate(zip(made[flaw], made[""], strict=True)) if not _alike(*pair))
        assert PART.cases[first].arguments[0].size <= 4, flaw


def _alike(a, b):
    return agrees(Outcome(a, "float64"), b)
