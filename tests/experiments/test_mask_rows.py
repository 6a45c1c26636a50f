"""Rows of masked weights: exact zeros and sums of 1, against what multiplying after softmax leaves."""

import pytest

from attnbook.experiments import mask_rows


@pytest.fixture(scope="module")
def found():
    return mask_rows.run(tokens=5, head_dim=3, repeats=2000)


def test_the_future_gets_exactly_nothing_and_rows_still_sum_to_one(found):
    """Masking before softmax: no weight after the query, in any dtype, and no weight lost."""
    assert found["mask.visible_pairs"] == 5 + 4 + 3 + 2 + 1
    assert found["mask.future_weight"] == 0
    assert found["mask.zero_in_every_dtype"] is True
    assert found["mask.row_sum_error"] < 1e-6


def test_the_first_query_sees_itself_alone(found):
    """Its output is its own value, bit for bit."""
    assert found["mask.first_row_is_v0"] is True


def test_multiplying_after_softmax_loses_the_share_of_the_hidden_keys(found):
    """By symmetry a query that sees i of n keys keeps i/n on average."""
    assert found["mask.late_first_sum"] == pytest.approx(1 / 5, abs=0.02)
    assert found["mask.late_middle_sum"] == pytest.approx(3 / 5, abs=0.02)
    assert found.data["late"].sum(-1)[-1] == pytest.approx(1, abs=1e-6)


def test_multiplying_after_softmax_leaks_through_the_sum(found):
    """The hidden scores stay in the denominator, and the probe sees that."""
    assert found["mask.late_leaks"] is True


def test_dividing_by_the_sum_again_works_until_the_visible_weights_round_to_zero(found):
    """exp(−gap) leaves the dtype: below the smallest float32 near 104, the smallest float16 near 17.3."""
    assert found["mask.renormalised_error"] < 1e-6
    assert 87 <= found["mask.renormalised_gap_float32"] <= 105
    assert found["mask.renormalised_gap_float16"] == 18
