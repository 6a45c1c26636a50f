"""The two mistakes raise nothing and are wrong."""

from attnbook.experiments import silent_mistakes


def test_both_mistakes_are_silent_and_large():
    """Right shapes, columns that sum to 1, rows that do not, numbers of another matrix."""
    found = silent_mistakes.run(repeats=200)
    silent = ("wrong_axis_columns", "wrong_axis_shape", "no_transpose_shape")
    for name in (*silent, "no_transpose_caught", "ones_find_wrong_axis"):
        assert found[f"oneline.{name}"] is True
    assert found["oneline.wrong_axis_smallest_sum"] < 0.8
    assert found["oneline.wrong_axis_largest_sum"] > 1.4
    assert found["oneline.no_transpose_change"] > 0.5


def test_the_exercise_knows_right_from_wrong():
    """Values of 1 tell softmax over keys from softmax over queries, and from no softmax at all."""
    assert silent_mistakes._rows_sum_to_one(silent_mistakes.three_lines.attention)
    assert not silent_mistakes._rows_sum_to_one(silent_mistakes._sideways)
    assert not silent_mistakes._rows_sum_to_one(lambda q, k, v: q @ k.mT @ v)


def test_the_sums_of_the_right_weights_are_one():
    """Beside them, as the comparison."""
    data = silent_mistakes.run(repeats=3).data
    assert abs(data["right_sums"] - 1).max() < 1e-5
    assert abs(data["sums"] - 1).max() > 0.1
