"""Step 7: tiles and online softmax, right in any style, and wrong in the ways that are known."""

from itertools import combinations

import numpy as np
import pytest
import torch

from attnbook.lab import held
from attnbook.lab.imitated import CLOSE
from attnbook.lab.solutions.step7_tiles import tiled_attention
from attnbook.lab.steps import step
from attnbook.lab.steps.tiles import FLAWS
from attnbook.lab.texts import LANGUAGES, texts
from attnbook.reference import attention
from tests.lab.steps.solutions_tiles import RIGHT, TABLES, WHOLE, WRONG

STEP = step(7)
PART = STEP.parts[0]
COMPARED = [case for case in PART.cases if len(case.arguments) == 4]


@pytest.mark.parametrize("source", RIGHT.values(), ids=RIGHT)
def test_a_right_solution_is_accepted(judged, source):
    """Whatever its style, its library, its names and its dtype."""
    assert judged.diagnose(STEP, source) == ()


@pytest.mark.parametrize(
    ("names", "source"),
    [pytest.param(names, x, id=f"{names}-{i}") for names, sources in WRONG.items() for i, x in enumerate(sources)],
)
def test_a_mistake_is_named(judged, names, source):
    """Each in at least two ways of writing it; two mistakes at once are both named."""
    assert set(judged.diagnose(STEP, source)) == set(names.split())


def test_every_mistake_has_two_solutions_and_a_text():
    """None is left out of the table; its text speaks three languages and leads to the book."""
    assert set(" ".join(WRONG).split()) == {*FLAWS, *(recogniser.name for recogniser in PART.recognisers)}
    for name in " ".join(WRONG).split():
        assert sum(len(sources) for names, sources in WRONG.items() if name in names.split()) >= 2, name
        assert texts(7).page(name)
        assert len({texts(7).mistake(name, lang) for lang in LANGUAGES}) == 3


def test_the_model_is_the_reference():
    """On every case whose scores the reference can tell apart, to the last digits of float64."""
    for case in COMPARED:
        q, k, v = (torch.tensor(x, dtype=torch.float64)[None, None] for x in case.arguments[:3])
        assert np.abs(PART.model(*case.arguments) - attention(q, k, v)[0, 0].numpy()).max() < 1e-13


def imitated(flaw):
    return [PART.model(*case.arguments, flaws=frozenset({flaw} - {"right"})) for case in PART.cases]


def differ(a, b):
    """By far more than what counts as the same, or in where they are NaN."""
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return True
    finite = np.isfinite(a)
    return bool(np.abs(a - b)[finite].max(initial=0) > 10 * CLOSE * np.abs(b[finite]).max(initial=0))


def test_no_two_mistakes_look_alike():
    """On some case they differ; and from what is right on one that is small enough to follow."""
    found = {flaw: imitated(flaw) for flaw in ("right", *FLAWS)}
    for one, other in combinations(found, 2):
        assert any(differ(a, b) for a, b in zip(found[one], found[other], strict=True)), (one, other)
    small = [i for i, case in enumerate(PART.cases) if sum(x.size for x in case.arguments[:3]) <= 16]
    for flaw in set(FLAWS) - {"whole_table"}:
        assert any(differ(found[flaw][i], found["right"][i]) for i in small), flaw


def function(source):
    space = {}
    exec(source, space)
    return space["tiled_attention"]


def test_a_table_in_pieces_is_a_table():
    """Tiles of scores that are all kept until the end are as much as the whole, and are counted so."""
    *arrays, block, count_tables = PART.cases[-1].arguments
    counted = [held.tiled(f, *arrays, block, count_tables).item()
               for f in (tiled_attention, function(WHOLE), function(TABLES))]  # fmt: skip
    assert counted == [0, 1, 1]


def test_a_slow_function_is_let_off():
    """A loop over numbers that would take long is not asked for its memory."""
    asked = []

    def slow(q, k, v, block):
        asked.append(len(q) * len(k))
        held.time.sleep(held.SLOW + 0.05)
        return np.zeros((len(q), len(k))) @ v

    assert held.tiled(slow, *PART.cases[-1].arguments).item() == 0
    assert asked == [128 * 512]
