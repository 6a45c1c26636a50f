"""A query that may look nowhere, forward and backward."""

import math

import pytest

from attnbook.experiments import masked_rows


@pytest.fixture(scope="module")
def found():
    return masked_rows.run(head_dim=3)


def test_ours_gives_zero_and_no_gradient(found):
    """Output 0, lse −inf, gradient 0, no NaN anywhere."""
    assert found["mask.dead_output"] == 0
    assert found["mask.dead_lse"] == -math.inf
    assert found["mask.dead_query_gradient"] == 0
    assert found["mask.dead_nans"] == 0


def test_cleaning_after_softmax_hides_nan_in_the_output_and_keeps_it_in_the_gradients(found):
    """With an added mask the dead query's gradient (3 numbers) and that of every key (3 × 3) are NaN."""
    assert found["mask.plain_nans"] == 3
    assert found["mask.cleaned_after_looks_right"] is True
    assert found["mask.cleaned_after_dq_nans"] == 3
    assert found["mask.cleaned_after_dk_nans"] == 9


def test_writing_minus_infinity_over_the_scores_stops_nan_by_accident(found):
    """The backward pass of masked_fill writes 0 over it; cleaning before softmax needs no such luck."""
    assert found["mask.filled_nans"] == 0
    assert found["mask.cleaned_before_nans"] == 0


def test_the_lowest_number_averages_everything_unless_it_is_read_as_hidden(found):
    """Plain softmax gives mean(V) for the empty row; ours takes the number for −inf; torch's own attention gives 0."""
    assert found["mask.lowest_is_mean"] is True
    assert found["mask.lowest_hidden_by_ours"] is True
    assert found["mask.sdpa_dead_is_zero"] is True
