"""What the lab's three lines do, measured on the reader's function as on the reference."""

import numpy as np

from attnbook.experiments import lab_three_lines
from attnbook.lab import solution


def test_the_reference_and_the_solution_are_averages():
    """Both agree, weights add to 1, outputs lie between the values, and the division evens the weights out."""
    for function in (lab_three_lines.three_lines.attention, *solution(1)):
        found = lab_three_lines.run(function, repeats=20)
        assert found["lab.lines_gap"] < 1e-12
        assert found["lab.lines_ones"] is True
        assert found["lab.lines_inside"] is True
        assert found["lab.lines_top_divided"] < 0.4
        assert found["lab.lines_top_undivided"] > 0.8


def test_another_function_is_told_apart():
    """A plain sum of the values is no average, and forgets the scores."""
    found = lab_three_lines.run(lambda q, k, v: np.ones((len(q), len(k))) @ v, repeats=2)
    assert found["lab.lines_gap"] > 1
    assert found["lab.lines_ones"] is False
    assert found["lab.lines_inside"] is False
