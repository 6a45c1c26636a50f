"""The log-sum-exp: between the maximum and the maximum plus log n, with softmax as its gradient."""

import math

import pytest
import torch

from attnbook.experiments import log_sum_exp as experiment


def test_it_is_a_soft_maximum_with_softmax_as_gradient():
    """Rows of sizes from 0.1 to 1000; weights are read off it again."""
    found = experiment.run(rows=29, n=13)
    assert found["softmax.lse_between"] is True
    assert found["softmax.lse_gradient_error"] < 1e-12
    assert found["softmax.weights_from_lse_error"] < 1e-12
    assert found["softmax.naive_lse_at_1000"] == math.inf
    assert found["softmax.lse_at_1000"] == pytest.approx(1000 + math.log(2))


@pytest.mark.parametrize("off", [lambda lse, x: x.amax(-1) - 1e-6, lambda lse, x: lse + math.log(x.shape[-1])])
def test_a_wrong_log_sum_exp_is_noticed(monkeypatch, off):
    """Below the maximum, or above the maximum plus log n."""
    right = experiment.logsumexp
    monkeypatch.setattr(experiment, "logsumexp", lambda x: off(right(x), x))
    assert experiment.run(rows=29, n=13)["softmax.lse_between"] is False


def test_the_weights_come_from_the_log_sum_exp_of_their_own_row():
    """By hand: log(e⁰ + e⁰) = log 2, each weight ½."""
    assert experiment.logsumexp(torch.zeros(2, dtype=torch.float64)).item() == pytest.approx(math.log(2))
