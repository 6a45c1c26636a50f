"""Rows of −inf, and rows that are merely very negative, under each way to calculate softmax."""

import math

import pytest

from attnbook.experiments import endless_rows as experiment


@pytest.fixture(scope="module")
def found():
    return experiment.run()


def test_a_row_of_minus_infinity_is_nan_or_an_average_elsewhere_and_zero_here(found):
    """The formula, the subtraction and torch: NaN. The most negative finite number: 1/4. Ours: 0."""
    for choice in ("naive", "subtract", "torch"):
        assert math.isnan(found[f"softmax.empty_row_{choice}"])
    assert found["softmax.empty_row_finite"] == 1 / 4
    assert found["softmax.empty_row_ours"] == 0
    assert found["softmax.empty_row_lse"] == -math.inf


def test_a_query_that_may_look_nowhere_takes_nothing_and_sends_nothing_back(found):
    """Output 0, log-sum-exp −inf, gradients 0."""
    assert found["softmax.empty_query_output"] == 0
    assert found["softmax.empty_query_lse"] == -math.inf
    assert found["softmax.empty_query_gradients_are_zero"] is True


def test_very_negative_scores_are_ordinary_scores(found):
    """−6e4 beats −7e4, unless the maximum starts at 0 or is not subtracted."""
    assert found["softmax.very_negative_ours"] == 1
    assert math.isnan(found["softmax.very_negative_naive"])
    assert math.isnan(found["softmax.very_negative_from_zero"])


def test_float16_turns_minus_7e4_into_minus_infinity(found):
    """A row of them is then an empty row; in float32 it is not."""
    assert found["softmax.float16_drops_7e4"] is True
    assert found["softmax.float16_pair_of_7e4"] == 0
    assert found["softmax.float32_pair_of_7e4"] == 1
    assert found["softmax.hidden_by_1e4"] == 1


def test_a_softmax_without_a_thought_of_minus_infinity_is_noticed(monkeypatch):
    """Subtracting the maximum alone leaves NaN."""
    monkeypatch.setattr(experiment, "softmax", experiment.subtract_maximum)
    assert math.isnan(experiment.run()["softmax.empty_row_ours"])
