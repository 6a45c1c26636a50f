"""Step 6: heads and grouped heads, right in any style, and wrong in the ways that are known."""

from itertools import combinations

import numpy as np
import pytest
import torch

from attnbook.lab.imitated import CLOSE
from attnbook.lab.step import Part
from attnbook.lab.steps import step
from attnbook.lab.texts import LANGUAGES, texts
from attnbook.reference import attention, merge_heads, split_heads
from tests.lab.steps import solutions_groups, solutions_heads

STEP = step(6)
HEADS, GROUPS = STEP.parts


def flat(solutions: dict[str, list[str]]) -> list[object]:
    return [
        pytest.param(names, source, id=f"{names}-{i}")
        for names, sources in solutions.items()
        for i, source in enumerate(sources)
    ]


@pytest.mark.parametrize(("part", "source"), [
    *(pytest.param(HEADS, source, id=f"heads: {name}") for name, source in solutions_heads.RIGHT.items()),
    *(pytest.param(GROUPS, source, id=f"groups: {name}") for name, source in solutions_groups.RIGHT.items()),
])  # fmt: skip
def test_a_right_solution_is_accepted(judged, part, source):
    """Whatever its style, its library, its names and its dtype."""
    assert judged.diagnose(STEP, source, part) == ()


@pytest.mark.parametrize(("names", "source"), flat(solutions_heads.WRONG))
def test_a_mistake_with_heads_is_named(judged, names, source):
    """Each in at least two ways of writing it; two mistakes at once are both named."""
    assert set(judged.diagnose(STEP, source, HEADS)) == set(names.split())


@pytest.mark.parametrize(("names", "source"), flat(solutions_groups.WRONG))
def test_a_mistake_with_groups_is_named(judged, names, source):
    """Each in at least two ways of writing it."""
    assert judged.diagnose(STEP, source, GROUPS) == (names,)


def test_every_mistake_has_two_solutions_and_a_text():
    """None is left out of both tables; its text speaks three languages and leads to the book."""
    tables = {**solutions_groups.WRONG, **solutions_heads.WRONG}
    known = {*(flaw for part in STEP.parts for flaw in part.flaws)}
    known |= {recogniser.name for part in STEP.parts for recogniser in part.recognisers}
    assert set(" ".join(tables).split()) == known
    for name in known:
        assert sum(len(sources) for names, sources in tables.items() if name in names.split()) >= 2, name
        assert texts(6).page(name)
        assert len({texts(6).mistake(name, lang) for lang in LANGUAGES}) == 3


@pytest.mark.parametrize("part", STEP.parts, ids=lambda part: part.name)
def test_the_model_is_the_reference(part):
    """On every case, to the last digits of float64."""
    for case in part.cases:
        q, k, v, *heads = case.arguments
        cut = [split_heads(torch.tensor(x, dtype=torch.float64)[None], n)
               for x, n in ((q, heads[0]), (k, heads[-1]), (v, heads[-1]))]  # fmt: skip
        expected = merge_heads(attention(*cut))[0].numpy()
        assert np.abs(part.model(*case.arguments) - expected).max() < 1e-13


@pytest.mark.parametrize("part", STEP.parts, ids=lambda part: part.name)
def test_no_two_mistakes_look_alike(part: Part):
    """On some case they differ by far more than what counts as the same; and from what is right, on a small one."""
    found = {flaw: [part.model(*case.arguments, flaws=frozenset({flaw})) for case in part.cases] for flaw in part.flaws}
    right = [part.model(*case.arguments) for case in part.cases]
    for one, other in [*combinations(found.values(), 2), *((x, right) for x in found.values())]:
        assert any(a.shape != b.shape or np.abs(a - b).max() > 20 * CLOSE * np.abs(b).max()
                   for a, b in zip(one, other, strict=True))  # fmt: skip
    small = [i for i, case in enumerate(part.cases) if sum(x.size for x in case.arguments[:3]) <= 40]
    for flaw, values in found.items():
        shown = [values[i].shape != right[i].shape or np.abs(values[i] - right[i]).max() > 0.01 for i in small]
        assert any(shown), flaw
