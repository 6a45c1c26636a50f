"""Small transformers side by side, and what chapter 8 has them show."""

from functools import partial

import pytest
import torch

from attnbook.experiments import (
    _stacked,
    norms_gradients,
    norms_order,
    norms_warmup,
    residual_gradients,
    residual_training,
)
from attnbook.models import Transformer, train
from attnbook.models.training import token_losses


def one(seed: int, **options) -> Transformer:
    return Transformer(
        _stacked.SYMBOLS + 1, d_model=8, n_layers=2, n_heads=2, d_ff=16, positions="learned",
        max_positions=2 * _stacked.HALF, seed=seed, **options,
    )  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"norm": "post"}, {"residual": False}, {"norm_type": "rms"}], ids=str)
def test_models_side_by_side_give_what_each_gives_alone(options):
    """Same weights, same tokens, same logits."""
    stacked = _stacked.fresh(0, 3, 2, width=8, **options)
    tokens, targets = _stacked.copies(torch.Generator().manual_seed(0), 3, 5)
    for i, logits in enumerate(stacked(tokens).view(3, 5, -1, _stacked.SYMBOLS + 1)):
        torch.testing.assert_close(logits, one(i, **options)(tokens.view(3, 5, -1)[i]), atol=1e-5, rtol=1e-4)
    expected = [token_losses(one(i, **options)(tokens.view(3, 5, -1)[i]), targets.view(3, 5, -1)[i]) for i in range(3)]
    means = torch.stack([losses.sum() / (losses > 0).sum() for losses in expected])
    torch.testing.assert_close(stacked.losses((tokens, targets)), means, atol=1e-5, rtol=1e-4)


def test_training_side_by_side_is_training_alone_at_ones_own_rate():
    """Three steps with a rate and a warm-up of each model's own, against `attnbook.models.train`."""
    batch = partial(_stacked.copies, b=5)
    generator = torch.Generator().manual_seed(1)
    drawn = [batch(generator, 2) for _ in range(3)]
    rates, warmups = (1e-2, 3e-3), (0, 4)
    steps = iter(drawn)
    losses = _stacked.train(
        _stacked.fresh(0, 2, 2, width=8), lambda: next(steps), steps=3, rate=torch.tensor(rates),
        warmup=torch.tensor(warmups),
    )  # fmt: skip
    for i in range(2):
        mine = iter([(x.view(2, 5, -1)[i], y.view(2, 5, -1)[i]) for x, y in drawn])
        alone = train(one(i), lambda mine=mine: next(mine), steps=3, rate=rates[i], warmup=warmups[i])
        torch.testing.assert_close(losses[:, i], alone, atol=1e-4, rtol=1e-4)


def test_without_residual_and_norms_the_gradient_vanishes_and_with_norms_the_tokens_do():
    """Two ways to be lost."""
    found = residual_gradients.run(seed=5, models=2, depths=(2, 7), width=8)
    assert found["norm.gradient_ratio_neither"] < 1e-4
    assert found["norm.gradient_stays_no_residual"] is True
    assert found["norm.alike_deep_no_residual"] > found["norm.alike_deep_both"]


def test_residual_training_tells_of_each_depth():
    """A loss for each, with and without."""
    found = residual_training.run(seed=5, models=2, depths=(1, 3, 5), steps=6, width=8, last=2)
    assert found.data["with"].shape == found.data["without"].shape == (3, 2)
    assert found["norm.loss_5_without"] > 2


def test_orders_are_trained_in_all_conditions():
    """Two orders, two rates, with warm-up and without."""
    found = norms_order.run(seed=5, models=2, layers=2, width=8, steps=6, warmup=3, last=2)
    assert len(found.data["curves"]) == 8
    assert all(curve.shape == (6, 2) for curve in found.data["curves"].values())


def test_every_layer_has_a_gradient_in_both_orders():
    """One length for each model and layer, none of them 0."""
    found = norms_gradients.run(seed=5, models=2, layers=3, width=8)
    for order in norms_order.ORDERS:
        assert found.data[order].shape == (2, 3)
        assert (found.data[order] > 0).all()


def test_half_of_the_models_warm_up():
    """Half of the models have one, and their losses go another way."""
    found = norms_warmup.run(seed=5, models=2, layers=2, width=8, steps=5, warmup=3, last=2)
    assert found.data["sudden"].shape == found.data["warm"].shape == (5, 2)
    assert found["norm.loss_post_middle"] != found["norm.loss_post_middle_warm"]
