"""The little look-up model: what it is asked, and how it learns with and without the division by √d."""

import math

import pytest
import torch

from attnbook.experiments import scaling_training as experiment
from attnbook.reference import attention


def test_the_answer_is_the_value_that_stood_beside_the_key():
    """Taking the code of the answer from the pair leaves the code of the key that is asked for."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.randn(2, 16, 5, generator=generator), torch.randn(2, 8, 5, generator=generator)
    asked, pairs, answer = experiment.look_up(codes, generator)
    assert asked.shape == (2, experiment.BATCH, 1, 5)
    assert pairs.shape == (2, experiment.BATCH, experiment.PAIRS, 5)
    value = codes[1][torch.arange(2)[:, None], answer]
    assert torch.allclose(pairs[:, :, 0] * 2**0.5 - value, asked[:, :, 0], atol=1e-5)


def test_models_side_by_side_do_not_feel_each_other():
    """A model trains the same whatever the learning rate of its neighbour."""
    one, other = (experiment.train(7, "divided", torch.tensor([3e-3, rate]), steps=5, seed=1) for rate in (1e-3, 1e-1))
    assert torch.allclose(one.loss[:, 0], other.loss[:, 0])
    assert not torch.allclose(one.loss[1:, 1], other.loss[1:, 1])


def test_the_optimiser_is_adam():
    """Ten steps beside torch's own, from the same start."""
    start, target = torch.randn(2, 2, 3, 5, generator=torch.Generator().manual_seed(1))
    ours = experiment.Adam([start.clone()], torch.tensor([0.1, 0.1]))
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=0.1)
    for _ in range(10):
        ours.step(((ours.parameters[0] - target) ** 2).sum())
        optimiser.zero_grad()
        ((theirs - target) ** 2).sum().backward()
        optimiser.step()
    assert torch.allclose(ours.parameters[0], theirs, atol=1e-5)


def test_scores_start_at_1_with_the_division_or_small_maps_and_at_the_square_root_of_d_without():
    """Two ways to the same start."""
    start = {
        way: experiment.train(64, way, torch.tensor([1e-3] * 5), steps=1, seed=1).score_sd[0].mean()
        for way in ("divided", "small", "plain")
    }
    assert start["divided"] == pytest.approx(1, rel=0.2)
    assert start["small"] == pytest.approx(1, rel=0.2)
    assert start["plain"] == pytest.approx(8, rel=0.2)


@pytest.fixture(scope="module")
def found():
    return experiment.run(dims=(16, 128), rates=(3e-3, 1e-2), models=3)


def test_both_ways_learn_and_the_division_learns_better(found):
    """Below the loss of guessing; and far below without the division at the larger d."""
    assert found["scaling.plain_learns_too"] is True
    assert found["scaling.divided_wins_at_every_d"] is True
    assert found["scaling.plain_worsens_with_d"] is True
    assert found["scaling.plain_over_divided"] > 5
    assert found.data["chance"] == pytest.approx(math.log(8))


def test_an_attention_that_never_divides_is_noticed(monkeypatch):
    """With and without are then the same training, so neither wins."""
    monkeypatch.setattr(experiment, "attention", lambda q, k, v, *, scale: attention(q, k, v, scale=1.0))
    found = experiment.run(dims=(7,), rates=(3e-3, 1e-2), models=2, steps=10)
    assert found["scaling.divided_wins_at_every_d"] is False
