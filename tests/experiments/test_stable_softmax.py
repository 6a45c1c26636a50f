"""Subtracting the maximum: the same function, without overflow, at a small price in accuracy."""

import math
from decimal import Decimal

import pytest
import torch

from attnbook.experiments import stable_softmax as experiment


@pytest.fixture(scope="module")
def found():
    return experiment.run(rows=11, n=23)


def test_the_formula_overflows_and_the_shifted_one_does_not(found):
    """[1000, 999, 998]: NaN, and the weights of [2, 1, 0]."""
    assert math.isnan(found["softmax.naive_at_1000"])
    assert found["softmax.stable_at_1000"] == pytest.approx(1 / (1 + math.exp(-1) + math.exp(-2)))
    assert found["softmax.large_equals_small"] is True
    assert found["softmax.minus_mean_is_nan"] is True


def test_both_are_the_same_fraction_in_exact_arithmetic(found):
    """For any rational base and whole scores up to 1000."""
    assert found["softmax.same_in_exact_arithmetic"] is True
    assert experiment.same_exactly(12345)


def test_the_exact_softmax_is_right_to_its_last_digits():
    """Two scores: 1/(1 + e^Δ), in 40 digits."""
    first, second = experiment.exact_softmax([0.0, 1.0])
    assert first + second == 1
    assert abs(first - 1 / (1 + Decimal(1).exp())) < Decimal("1e-26")


def test_the_unshifted_formula_is_more_accurate_where_it_works(found):
    """The rounding of x − m is what it saves; heavy weights hardly feel it."""
    assert found["softmax.naive_more_accurate"] is True
    assert found["softmax.naive_error"] < 1 < found["softmax.stable_error"]
    assert found["softmax.stable_error_heavy"] < 1
    assert 0 < found["softmax.largest_difference"] < 1e-6


def test_a_shift_changes_only_what_it_rounds_off_the_scores(found):
    """Nothing at all for sixteenths; otherwise no more than the scores themselves moved."""
    assert found["softmax.shift_is_exact"] is True
    assert 0 < found["softmax.shift_moves"] <= found["softmax.shift_rounds_scores"] < 1e-4
    assert found["softmax.naive_shifted_is_nan"] is True


def test_the_error_is_relative_and_in_machine_epsilons():
    """A weight one epsilon too large has error 1."""
    eps = torch.finfo(torch.float32).eps
    error = experiment.relative_error(torch.tensor([[0.5 * (1 + eps)]]), [[Decimal("0.5")]])
    assert error.item() == pytest.approx(1)


def test_a_softmax_that_forgets_the_maximum_is_noticed(monkeypatch):
    """Then nothing is saved at 1000, and no accuracy is lost."""
    monkeypatch.setattr(experiment, "softmax", experiment.naive_softmax)
    found = experiment.run(rows=3, n=23)
    assert math.isnan(found["softmax.stable_at_1000"])
    assert found["softmax.naive_more_accurate"] is False
