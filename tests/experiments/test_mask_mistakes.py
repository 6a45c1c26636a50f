"""Mistakes in masks, each on its own small case with the answer worked out by hand."""

import pytest

from attnbook.experiments import mask_mistakes


@pytest.fixture(scope="module")
def found():
    return mask_mistakes.run(tokens=5, head_dim=3, repeats=11)


def test_a_number_outside_float16_behaves_by_how_it_is_written(found):
    """Filling refuses, a Python number rounds after the product, a tensor rounds before it and spoils what is seen."""
    assert found["mask.half_fill_refused"] is True
    assert found["mask.half_number_is_inf"] is True
    assert found["mask.half_tensor_nans"] == 15
    assert found["mask.half_tensor_nans_are_the_visible"] is True


def test_a_billion_hides_a_key_but_not_a_whole_row(found):
    """−1e9 equals −inf beside a visible key; alone, rounding to multiples of 64 makes every key equal."""
    assert found["mask.billion_works_with_a_key"] is True
    assert found["mask.billion_dead_row_is_uniform"] is True
    assert found["mask.billion_spacing"] == 64


def test_two_minima_let_a_padded_query_see_the_future(found):
    """Of five keys, three are filling: the first query shares itself and two future tokens, so 2/3 is future."""
    assert found["mask.two_minima_are_inf"] is True
    assert found["mask.added_future_weight"] == pytest.approx(2 / 3)
    assert found["mask.twice_is_nan"] is True
    assert found["mask.joined_future_weight"] == 0


def test_true_means_keep_in_one_function_of_torch_and_drop_in_another(found):
    """Given the right way round both agree with ours; the wrong way round no weight is left for the past."""
    assert found["mask.sdpa_error"] < 1e-6
    assert found["mask.multihead_error"] < 1e-6
    assert found["mask.sdpa_flipped_past"] == 0
    assert found["mask.probe_finds_flipped"] is True
    assert found["mask.multihead_flipped_past"] == 0
    assert found["mask.multihead_last_row_nan"] is True
    assert found["mask.multihead_last_row_quick"] == 0


def test_the_probe_reports_one_diagonal_too_many_and_not_one_too_few(found):
    """j < i allows 10 pairs of 25, j ≤ i 15, j ≤ i + 1 19; only the last one leaks."""
    assert found["mask.strict_pairs"] == 10
    assert found["mask.leaky_pairs"] == 19
    assert found["mask.strict_first_row"] == 0
    assert found["mask.probe_reports_leaky_only"] is True
