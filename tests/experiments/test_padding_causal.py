"""Sequences of different lengths in one batch, each compared with itself alone."""

import pytest

from attnbook.experiments import padding_causal


@pytest.fixture(scope="module")
def found():
    return padding_causal.run(lengths=(5, 2, 3), tokens=5, head_dim=3)


def test_with_a_padding_mask_each_sequence_comes_out_as_if_alone(found):
    """Left and right, causal and not, float32 and the half types."""
    assert found["mask.padded_error"] < 1e-6
    assert found["mask.padded_half_error"] < 0.02


def test_without_it_only_filling_on_the_right_of_a_causal_batch_is_harmless(found):
    """There the filling is the future, which is hidden already."""
    assert found["mask.right_without_mask_error"] < 1e-6
    assert found["mask.left_without_mask_error"] > 0.1
    assert found["mask.encoder_right_without_mask_error"] > 0.1


def test_queries_of_filling_on_the_left_see_nothing(found):
    """0 + 3 + 2 places of filling; on the right each of them sees the tokens before it."""
    assert found["mask.left_empty_rows"] == 5
    assert found["mask.right_empty_rows"] == 0


def test_a_weight_of_zero_does_not_stop_nan_in_the_values(found):
    """0 · NaN is NaN: every output of a sequence with NaN in its filling is lost, and no other; in torch too."""
    assert found["mask.nan_in_filling_spreads"] is True
    assert found["mask.nan_in_filling_spreads_torch"] is True


def test_ours_keeps_nan_in_the_filling(found):
    """The tokens' outputs are what they are with finite filling, and no gradient is NaN."""
    assert found["mask.nan_in_filling_error"] < 1e-6
    assert found["mask.nan_in_filling_gradient_nans"] == 0
