"""Keeping experts busy: the loss by its formula, the bias by its rule."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference import update_selection_bias
from attnbook.reference.balance import router_z_loss, switch_loss
from attnbook.reference.moe import moe


def test_switch_loss_by_hand():
    """Two experts, shares 3/4 and 1/4, mean scores 0.6 and 0.4: 2 · (0.45 + 0.1) = 1.1; k does not count twice."""
    score = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]], dtype=torch.float64)
    experts = torch.tensor([[0], [0], [0], [1]])
    np.testing.assert_allclose(switch_loss(score.log(), experts), 1.1, rtol=1e-12)
    np.testing.assert_allclose(switch_loss((score * 7).log(), experts), 1.1, rtol=1e-12)  # scores count by their share
    np.testing.assert_allclose(switch_loss(score.log(), torch.tensor([[0, 1]] * 4)), 1.0, rtol=1e-12)


def test_z_loss_by_hand():
    """The square of log(e⁰ + e⁰) is ln² 2; the mean over tokens."""
    logits = torch.tensor([[0.0, 0.0], [0.0, -torch.inf]], dtype=torch.float64)
    np.testing.assert_allclose(router_z_loss(logits), np.log(2) ** 2 / 2, rtol=1e-12)


def test_the_bias_moves_by_a_fixed_step():
    """Up below the mean load, down above it, not at all at the mean; a new tensor, in the bias's dtype."""
    bias = torch.tensor([0.5, 0.0, -0.25, 0.0], dtype=torch.bfloat16)
    moved = update_selection_bias(bias, torch.tensor([9, 5, 1, 5]), rate=0.25)
    assert moved.tolist() == [0.25, 0.0, 0.0, 0.0]
    assert moved.dtype == torch.bfloat16
    assert bias.tolist() == [0.5, 0.0, -0.25, 0.0]
    step = update_selection_bias(torch.zeros(2), torch.tensor([0, 2]))
    np.testing.assert_allclose(step, [0.001, -0.001], rtol=1e-6)


def test_the_bias_balances_without_a_loss():
    """Batch after batch the loads come together, and the weights stay the router's own scores."""
    rng = np.random.default_rng(3)
    router = torch.from_numpy(rng.standard_normal((5, 7)))
    experts = [torch.zeros(5, 7, 2).double(), torch.zeros(5, 7, 2).double(), torch.zeros(5, 2, 7).double()]
    bias, spread = torch.zeros(5), []
    for _ in range(150):
        x = torch.from_numpy(rng.standard_normal((211, 7)) + 0.7)
        _, info = moe(x, router, *experts, top_k=2, scoring="sigmoid", selection_bias=bias, renormalize=False)
        np.testing.assert_allclose(info.weights, torch.sigmoid(x @ router.mT).gather(1, info.experts), rtol=1e-10)
        spread.append(float(info.loads.double().std()))
        bias = update_selection_bias(bias, info.loads, rate=0.01)
    assert np.mean(spread[-20:]) < np.mean(spread[:5]) / 4


@pytest.mark.parametrize(
    ("bias", "loads", "rate", "error", "text"),
    [
        (torch.zeros(3), torch.zeros(4), 0.1, ShapeError,
         "loads has shape (4,) and bias (3,): expected (e,) for both"),
        (torch.zeros(3, 1), torch.zeros(3, 1), 0.1, ShapeError,
         "loads has shape (3, 1) and bias (3, 1): expected (e,) for both"),
        (torch.zeros(3).long(), torch.zeros(3), 0.1, DTypeError,
         "bias has dtype torch.int64: expected a floating-point dtype"),
        (torch.zeros(3), torch.zeros(3), -0.1, ValueError, "rate is -0.1: expected 0 or more"),
        ([0.0] * 3, torch.zeros(3), 0.1, TypeError, "bias is a list: expected a torch tensor"),
        (torch.zeros(3), [3, 4, 5], 0.1, TypeError, "loads is a list: expected a torch tensor"),
        (torch.zeros(3), torch.zeros(3), "0.1", ValueError, "rate is '0.1': expected 0 or more"),
        (torch.zeros(3), torch.zeros(3), float("nan"), ValueError, "rate is nan: expected 0 or more"),
    ],
)  # fmt: skip
def test_errors(bias, loads, rate, error, text):
    """Shapes that differ, a bias of integers, a rate below 0."""
    with pytest.raises(error, match="^" + re.escape(text) + "$"):
        update_selection_bias(bias, loads, rate=rate)
