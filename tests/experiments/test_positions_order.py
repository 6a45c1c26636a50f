"""Models without any encoding of positions: what a causal mask tells them, and after how many layers."""

import pytest
import torch

from attnbook.experiments import _unplaced as task
from attnbook.experiments import positions_order


@pytest.fixture(scope="module")
def found():
    return positions_order.run(seed=3, models=2, steps=50, batch=8, asked=400)


def test_without_a_mask_nothing_is_learned(found):
    """Place and order stay at chance, with one layer and with two."""
    for layers in ("one", "two"):
        assert found[f"position.open_{layers}_place"] == pytest.approx(1 / 14, abs=0.02)
        assert found[f"position.open_{layers}_order"] == pytest.approx(0.5, abs=0.06)


def test_one_causal_layer_knows_the_place_but_not_the_order(found):
    """The mask counts for it; the last token sees everything."""
    assert found["position.causal_one_place"] > 0.25
    assert found["position.causal_one_order"] == pytest.approx(0.5, abs=0.06)


def test_a_sequence_has_one_a_and_one_b_between_its_marks():
    """And `before` says which is first."""
    tokens, before = task.sequences(torch.Generator().manual_seed(0), 2, 50)
    assert tokens.shape == (2, 50, task.LENGTH)
    assert (tokens[..., 0] == task.FIRST).all()
    assert (tokens[..., -1] == task.ASK).all()
    assert ((tokens == task.A).sum(-1) == 1).all()
    assert ((tokens == task.B).sum(-1) == 1).all()
    first = (tokens == task.A).int().argmax(-1) < (tokens == task.B).int().argmax(-1)
    assert torch.equal(first, before)
    assert 0 < before.double().mean() < 1


def test_models_side_by_side_do_not_touch_one_another():
    """One model alone says what it said among the others."""
    models = task.Models.fresh(torch.Generator().manual_seed(0), 3, layers=2, is_causal=True)
    tokens, _ = task.sequences(torch.Generator().manual_seed(1), 3, 2)
    alone = task.Models({name: weight[1:2] for name, weight in models.weights.items()}, 2, True)
    for one, among in zip(alone(tokens[1:2]), models(tokens), strict=True):
        torch.testing.assert_close(one, among[1:2])
