"""The chapters' exercises: every mistake is told from every other, however written, and who is right has passed."""

from __future__ import annotations

import itertools
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from attnbook import reference
from attnbook.costs import kv_cache_bytes, model
from attnbook.lab.handed import ROWS_SUM
from attnbook.lab.steps import FILES, step
from attnbook.lab.texts import texts
from attnbook.reference.router import largest
from tests.lab.run import Desk
from tests.lab.steps import solutions_exercise02_others as others
from tests.lab.steps import solutions_exercise07_rotate as rotate
from tests.lab.steps import solutions_exercise08_norm as norm
from tests.lab.steps import solutions_exercise09_cache as cache
from tests.lab.steps import solutions_exercise09_route as route
from tests.lab.steps import solutions_exercise09_window as window
from tests.lab.steps.written import with_torch

TOP_LEFT = "np.arange(t_q)[:, None]"
ROOT = Path(__file__).parents[3]
STEPS = {module: step(key) for key, module in FILES.items() if key.startswith("chapter-")}
TABLES = {name: import_module(f"tests.lab.steps.solutions_{name}") for name in STEPS}
PARTS = {name: found.parts[0] for name, found in STEPS.items()}
WRONG = [
    pytest.param(name, mistake, source, id=f"{name} {mistake} {i}")
    for name, table in TABLES.items()
    for mistake, sources in table.WRONG.items()
    for i, source in enumerate(sources)
]
RIGHT = [
    pytest.param(name, source, id=f"{name} {style}")
    for name, table in TABLES.items()
    for style, source in table.RIGHT.items()
]


@pytest.mark.parametrize(("name", "mistake", "source"), WRONG)
def test_a_mistake_is_named(judged: Desk, name, mistake, source):
    """By what the function does on the exercise's cases."""
    assert judged.diagnose(STEPS[name], source) == (mistake,)


@pytest.mark.parametrize(
    ("name", "mistakes", "source"),
    [
        (
            "exercise07_rotate",
            {"neighbours", "backwards"},
            rotate.numpy_rope(
                split="a, b = x[:, 0::2], x[:, 1::2]",
                turn="new = np.stack([a * cos + b * sin, b * cos - a * sin], -1).reshape(x.shape)",
            ),
        ),
        (
            "exercise08_norm",
            {"unbiased", "eps_outside"},
            norm.torch_norm(correction=1, below="(variance.sqrt() + eps)"),
        ),
        ("exercise08_norm", {"no_gamma", "no_beta"}, norm.numpy_norm(end="z")),
        ("exercise08_norm", {"changed"}, norm.numpy_norm(z="np.subtract(x, mean, out=x) / np.sqrt(variance + eps)")),
        ("exercise09_cache", {"one_of_two", "one_byte"}, cache.without("bytes_per_number")[0].replace("2 * ", "")),
        ("exercise09_window", {"top_left", "one_more"}, window.numpy_mask("(j <= p) & (j >= p - window)", TOP_LEFT)),
        ("exercise09_window", {"kind"}, window.numpy_mask("((j <= p) & (j > p - window)).astype(int)")),
        ("exercise09_route", {"shape"}, with_torch(route.ROUTE("return logits.topk(k).values.softmax(-1)"))),
        ("exercise02_others", {"none"}, others.OTHERS("x @ x.T")),
    ],
)
def test_two_mistakes_and_those_of_any_function(judged: Desk, name, mistakes, source):
    """Made at once, both are named; what any function can get wrong is told apart from what this one can."""
    assert set(judged.diagnose(STEPS[name], source)) == mistakes


@pytest.mark.parametrize(("name", "source"), RIGHT)
def test_who_is_right_has_passed(judged: Desk, name, source):
    """In every style: loops, einsum, torch, other names, other types."""
    assert judged.diagnose(STEPS[name], source) == ()


@pytest.mark.parametrize("name", STEPS)
def test_every_mistake_has_two_solutions_and_a_text(name):
    """None is left out of the table of wrong solutions; its text speaks three languages and leads to the book."""
    part, said = PARTS[name], texts(STEPS[name].key)
    names = {*part.flaws, *(recogniser.name for recogniser in part.recognisers)}
    assert names == set(TABLES[name].WRONG) == set(said.data["mistakes"])
    for mistake in names:
        assert len(TABLES[name].WRONG[mistake]) >= 2, mistake
        assert all(said.mistake(mistake, lang, unit="GiB") for lang in ("ja", "ko", "en"))
        assert said.page(mistake)


@pytest.mark.parametrize("name", STEPS)
def test_its_page_asks_for_it(name):
    """The chapter shows exercise, hints and solution, and the command that checks."""
    found = STEPS[name]
    page = (ROOT / "book" / f"{found.page}.md").read_text(encoding="utf-8")
    for shows in ("exercise", "hints", "solution"):
        assert page.count(f"```{{lab-{shows}}} {found.key}\n```\n") == 1
    assert f"attnbook lab check --step {found.key}\n" in page


@pytest.mark.parametrize("name", STEPS)
def test_mistakes_differ(name):
    """Any two of an exercise's flaws, and each and the truth, are far apart in some case, most in a small one."""
    part = PARTS[name]
    made = {flaw: _all(part, {flaw}) for flaw in part.flaws} | {"": _all(part, set())}
    for one, other in itertools.combinations(made, 2):
        assert any(_far(a, b) for a, b in zip(made[one], made[other], strict=True)), (one, other)
    for flaw in part.flaws:
        first = next(i for i, (a, b) in enumerate(zip(made[flaw], made[""], strict=True)) if _far(a, b))
        assert sum(np.size(x) for x in part.cases[first].arguments) <= 25, flaw


def _all(part, flaws):
    with np.errstate(all="ignore"):
        return [np.asarray(part.model(*case.arguments, flaws=frozenset(flaws)), float) for case in part.cases]


def _far(a, b):
    if a.shape != b.shape or (np.isfinite(a) != np.isfinite(b)).any():
        return True
    finite = np.isfinite(a)
    return bool((np.abs(a - b)[finite] > 0.01 * np.abs(b)[finite].max(initial=0)).any())


def test_the_handed_functions_are_what_they_are_called():
    """Rows sum to 1 for those that are said to, in float32 and float64, for arrays and tensors; not for the others."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((5, 7)), rng.standard_normal((11, 7))
    for case in PARTS["exercise01_rows"].cases:
        (fn,) = case.arguments
        for dtype in (np.float32, np.float64):
            arrays = [x.astype(dtype) for x in (q, k, np.eye(11))]
            weights = fn(*arrays)
            tensor = fn(*map(torch.from_numpy, arrays))
            assert (weights.dtype, tensor.dtype) == (dtype, torch.from_numpy(weights).dtype)
            np.testing.assert_array_equal(weights, tensor)
            assert np.allclose(weights.sum(-1), 1) == (fn.settings["weights"] in ROWS_SUM)


def test_the_solution_of_chapter_1_is_what_the_chapter_measures():
    """True for the three lines and False for the softmax over the queries, as `oneline.ones_find_wrong_axis` says."""
    from attnbook.experiments import silent_mistakes
    from attnbook.lab.solutions.exercise01_rows import rows_sum_to_one

    def of_tensors(fn):
        return lambda *arrays: fn(*map(torch.from_numpy, arrays)).numpy()

    assert rows_sum_to_one(of_tensors(reference.three_lines.attention))
    assert not rows_sum_to_one(of_tensors(silent_mistakes._sideways))


def _tensors(arguments):
    return [torch.from_numpy(x).double() if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in arguments]


def _reference(name, arguments):
    """What the book's own code returns."""
    if name == "exercise02_others":
        (x,) = _tensors(arguments)
        x = x[None, None]
        return reference.attention(x, x, x, mask=~torch.eye(x.shape[2], dtype=torch.bool))[0, 0]
    if name == "exercise04_merge":
        return reference.merge(*_tensors(arguments))[0]
    if name == "exercise07_rotate":
        x, positions, base = _tensors(arguments)
        return reference.rope(x, torch.from_numpy(positions), theta=base)
    if name == "exercise08_norm":
        x, gamma, beta, eps = _tensors(arguments)
        return reference.layer_norm(x, gamma, beta, eps=eps)
    if name == "exercise09_route":
        logits, k = _tensors(arguments)
        chosen = largest(logits, k)
        return torch.zeros_like(logits).scatter(1, chosen, reference.softmax(logits.gather(1, chosen)))
    return reference.window_mask(*arguments)


@pytest.mark.parametrize("name", sorted(STEPS.keys() - {"exercise01_rows", "exercise09_cache"}))
def test_the_truth_is_the_reference(name):
    """Without flaws a model is what the book's own code gives."""
    for case in PARTS[name].cases:
        expected = np.asarray(_reference(name, case.arguments))
        np.testing.assert_allclose(PARTS[name].model(*case.arguments), expected, rtol=1e-12, atol=1e-12)


def test_the_cache_is_the_packages():
    """Llama-3.1-8B with twenty requests of 8192 tokens in 16 bits: the chapter's and the package's count."""
    llama = model("Llama-3.1-8B")
    case = next(case for case in PARTS["exercise09_cache"].cases if case.arguments[-2] == 20)
    assert case.arguments == (llama.layers, llama.n_kv_heads, llama.head_dim, 8192, 20, 2)
    assert PARTS["exercise09_cache"].model(*case.arguments) == kv_cache_bytes(llama, tokens=8192, requests=20)
