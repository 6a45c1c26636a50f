"""Step 2: every mistake is told from every other, in whatever way it is written, and who is right has passed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from attnbook.lab.steps import step
from attnbook.lab.steps.root_d import score_sd
from attnbook.lab.texts import texts
from attnbook.reference import softmax
from tests.lab.run import Desk
from tests.lab.steps import solutions_root_d as written

STEP = step(2)
SPREAD, WEIGHT = STEP.parts
PARTS = {part.name: part for part in STEP.parts}
WRONG = [
    *((SPREAD, (name,), source) for name, sources in written.WRONG_SPREAD.items() for source in sources),
    *((SPREAD, names, source) for names, source in written.BOTH_SPREAD.items()),
    *((WEIGHT, (name,), source) for name, sources in written.WRONG_WEIGHT.items() for source in sources),
    *((WEIGHT, names, source) for names, source in written.BOTH_WEIGHT.items()),
]
RIGHT = [
    *((SPREAD, source) for source in written.RIGHT_SPREAD.values()),
    *((WEIGHT, source) for source in written.RIGHT_WEIGHT.values()),
]


@pytest.mark.parametrize(
    ("part", "names", "source"), WRONG, ids=lambda value: "+".join(value) if isinstance(value, tuple) else ""
)
def test_a_mistake_is_named(judged: Desk, part, names, source):
    """By what the function does, on the cases of its part."""
    assert set(judged.diagnose(STEP, source, part)) == set(names)


@pytest.mark.parametrize(("part", "source"), RIGHT, ids=[*written.RIGHT_SPREAD, *written.RIGHT_WEIGHT])
def test_who_is_right_has_passed(judged: Desk, part, source):
    """In every style: loops, einsum, torch, other names, float64, n or n − 1."""
    assert judged.diagnose(STEP, source, part) == ()


@pytest.mark.parametrize("part", STEP.parts, ids=lambda part: part.name)
def test_every_mistake_has_two_solutions_and_a_text(part):
    """None is left out of the table of wrong solutions; its text speaks three languages and leads to the book."""
    table = written.WRONG_SPREAD if part is SPREAD else written.WRONG_WEIGHT
    for name in {*part.flaws, *(recogniser.name for recogniser in part.recognisers)}:
        assert len(table[name]) >= 2, name
        assert all(texts(2).mistake(name, lang) for lang in ("ja", "ko", "en"))
        assert texts(2).page(name)


def test_the_truth_is_the_reference():
    """Without flaws the models are what the book's own code gives."""
    for case in SPREAD.cases:
        q, k = (torch.from_numpy(x).double() for x in case.arguments)
        assert float(score_sd(*case.arguments)) == pytest.approx(float((q * k).sum(-1).std(correction=0)), rel=1e-12)
    for case in WEIGHT.cases:
        q, k, scale = case.arguments
        weights = softmax(torch.from_numpy(q).double() @ torch.from_numpy(k).double().T * scale)
        assert float(WEIGHT.model(*case.arguments)) == pytest.approx(float(weights.amax(-1).mean()), rel=1e-12)


@pytest.mark.parametrize("part", STEP.parts, ids=lambda part: part.name)
def test_mistakes_differ(part):
    """Any two of a part's flaws, and each of them and the truth, are far apart in some case, most in a small one."""
    with np.errstate(all="ignore"):
        made = {flaw: _all(part, {flaw}) for flaw in part.flaws} | {"": _all(part, set())}
    for one, other in itertools.combinations(made, 2):
        assert any(_far(a, b) for a, b in zip(made[one], made[other], strict=True)), (one, other)
    for flaw in part.flaws:
        first = next(i for i, (a, b) in enumerate(zip(made[flaw], made[""], strict=True)) if _far(a, b))
        assert sum(np.size(x) for x in part.cases[first].arguments) <= 25, flaw


def _all(part, flaws):
    return [np.asarray(part.model(*case.arguments, flaws=frozenset(flaws))) for case in part.cases]


def _far(a, b):
    if a.shape != b.shape or (np.isfinite(a) != np.isfinite(b)).any():
        return True
    finite = np.isfinite(a)
    return bool((np.abs(a - b)[finite] > 0.01 * np.abs(b)[finite].max(initial=0)).any())
