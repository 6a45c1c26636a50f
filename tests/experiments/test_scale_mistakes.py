"""Mistakes around √d flatten the weights without an error."""

import math

import pytest

from attnbook.experiments import scale_mistakes


def test_dividing_too_much_flattens_the_weights_and_nothing_complains():
    """Twice is worse than √d_model for √head_dim; a uniform row would have 1/16."""
    found = scale_mistakes.run()
    right, d_model, twice = (found[f"scaling.max_weight_{name}"] for name in ("right", "d_model", "twice"))
    assert right > 2 * d_model > 2 * twice > 2 / 16
    assert found["scaling.score_sd_twice"] == pytest.approx(1 / 8, rel=0.03)
    assert found["scaling.score_sd_d_model"] == pytest.approx(1 / math.sqrt(8), rel=0.03)


def test_scores_of_longer_vectors_are_as_much_longer():
    """Twice and three times: six times, since the division only knows d."""
    assert scale_mistakes.run()["scaling.stretched_sd"] == pytest.approx(6, rel=0.05)


def test_many_keys_leave_a_jacobian_of_the_square_root_of_e_over_n():
    """Within a few per cent at n = 1024, and √(1/n), the norm of a uniform row, would be far off."""
    ratio = scale_mistakes.run()["scaling.jacobian_over_estimate"]
    assert 0.95 < ratio < 1.0
    assert not 0.95 < ratio * math.sqrt(math.e) < 1.0
