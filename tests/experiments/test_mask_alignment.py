"""Where the causal triangle stands when queries are fewer, or more, than keys."""

import pytest

from attnbook.experiments import mask_alignment


@pytest.fixture(scope="module")
def found():
    return mask_alignment.run(tokens=7, new=2, head_dim=5, repeats=11)


def test_the_last_queries_alone_equal_the_last_rows_of_the_whole(found):
    """Bottom-right alignment, ours and torch's causal_lower_right; torch's is_causal is far off."""
    assert found["mask.decode_error"] < 1e-6
    assert found["mask.lower_right_error"] < 1e-6
    assert found["mask.top_left_error"] > 0.1


def test_the_two_alignments_agree_on_a_square(found):
    """Which is why training does not show the difference."""
    assert found["mask.square_error"] < 1e-5


def test_one_query_of_five_keys_sees_five_or_one(found):
    """Bottom right: all of them. Top left: the first."""
    assert found["mask.one_query_sees"] == 5
    assert found["mask.one_query_sees_top_left"] == 1


def test_counts_by_hand(found):
    """Two queries of five keys: 4 + 5 against 1 + 2. Five queries of two keys: three rows see nothing."""
    assert found["mask.two_of_five_pairs"] == 9
    assert found["mask.two_of_five_pairs_top_left"] == 3
    assert found["mask.short_memory_empty_rows"] == 3
