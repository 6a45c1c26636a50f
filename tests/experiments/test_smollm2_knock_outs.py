"""Knocking heads out: the batched way is the plain way, and the random choice is a fair one."""

import pytest
import torch

from attnbook.experiments import _smollm2 as shared
from attnbook.experiments import smollm2_groups, smollm2_opened


class Short:
    """The trained model without its upper layers, so that a test reads it in no time."""

    def __init__(self, layers):
        self.whole, self.layers = shared.model().layers, layers

    def __enter__(self):
        from dataclasses import replace

        model = shared.model()
        self.config = model.config
        model.layers, model.config = model.layers[: self.layers], replace(model.config, n_layers=self.layers)

    def __exit__(self, *error):
        shared.model().layers, shared.model().config = self.whole, self.config


def test_all_knock_outs_in_batches_are_those_one_by_one():
    """For heads of every layer; and the loss of the whole is that of a plain reading."""
    tokens = shared.repeated(torch.Generator().manual_seed(1), 1, 5)
    with Short(3):
        whole, alone = shared.knock_outs(tokens, 7)
        assert alone.shape == (3, 9)
        assert whole == pytest.approx(float(shared.loss(tokens, 7)), abs=1e-4)
        for head in ((0, 5), (1, 3), (2, 8)):
            assert float(alone[head]) == pytest.approx(float(shared.loss(tokens, 7, [head])), abs=1e-3)


def test_random_choices_have_as_many_heads_in_each_layer():
    """And none of the found ones."""
    found = [(17, 3), (17, 4), (18, 6)]
    for seed in range(5):
        drawn = smollm2_groups.elsewhere(found, torch.Generator().manual_seed(seed))
        assert [layer for layer, _ in drawn] == [17, 17, 18]
        assert not set(drawn) & set(found)
        assert len(set(drawn)) == 3


def test_random_tokens_are_repeated_behind_the_start():
    """Both halves are alike, no control token among them."""
    tokens = shared.repeated(torch.Generator().manual_seed(0), 3, 7)
    assert tokens.shape == (3, 15)
    assert (tokens[:, 0] == shared.start()).all()
    assert torch.equal(tokens[:, 1:8], tokens[:, 8:])
    assert int(tokens[:, 1:].min()) >= shared.FIRST_ORDINARY


def test_the_plain_model_agrees_and_wrong_rows_do_not():
    """On a short text."""
    found = smollm2_opened.run(text="The river was quiet.")
    assert found["smollm2.blocks_agree"] is True
    assert found["smollm2.same_best"] is True
    assert found["smollm2.logits_apart"] < 3e-4
    assert found["smollm2.text_loss_wrong_rows"] > found["smollm2.text_loss"]
