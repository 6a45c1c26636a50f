"""What the functions of the lab's fifth step find, and what wrong ones would."""

import numpy as np
import pytest
import torch

from attnbook.experiments import lab_positions
from attnbook.lab import solution

REFERENCE = (lab_positions.reference_attend, lab_positions.reference_gap)


@pytest.mark.parametrize("functions", [REFERENCE, solution(5)])
def test_positions_are_what_tells_the_order(functions):
    """Without them, or with one for all, a gap of rounding alone; with them a gap that grows as they do."""
    found = lab_positions.run(*functions, draws=3)
    assert max(found["lab.gap_without"], found["lab.gap_same"], found["lab.twins_without"]) < 1e-12
    assert min(found["lab.gap_with"], found["lab.twins_with"]) > 1e-3
    assert found["lab.gap_every_order"] is True
    assert found["lab.gap_tenfold"] == pytest.approx(10, abs=0.05)
    assert found["lab.gap_opposed_swap"] < 1e-12 < 0.1 < found["lab.gap_opposed_circle"]


def test_attention_that_forgets_the_positions_is_found():
    """Its gap is 0 where positions should have made one, and twins stay twins."""
    found = lab_positions.run(lambda x, p: lab_positions.reference_attend(x, 0 * p), draws=3)
    assert found["lab.gap_with"] < 1e-12
    assert found["lab.twins_with"] < 1e-12
    assert found["lab.gap_every_order"] is False


def test_a_gap_that_permutes_one_side_finds_an_order_where_there_is_none():
    """The measurement that the page quotes as rounding is none then."""
    found = lab_positions.run(gap=lambda fn, x, order: np.abs(fn(x[order]) - fn(x)).max(), draws=3)
    assert found["lab.gap_without"] > 0.1


def test_a_circle_is_no_swap():
    """The orders that the mistakes are tried on: one is its own inverse, the other is not."""
    swap, circle = lab_positions.SWAP, lab_positions.CIRCLE
    assert swap[swap].tolist() == circle[circle][circle].tolist() == [0, 1, 2, 3, 4]
    assert circle[circle].tolist() != [0, 1, 2, 3, 4]


def attend_torch(x, p):
    z = x + p
    return torch.softmax(z @ z.T / x.shape[1] ** 0.5, 1) @ x


def gap_torch(fn, x, order):
    return (fn(x[order]) - fn(x)[order]).abs().max()


@pytest.mark.parametrize("gap", [gap_torch, lab_positions.reference_gap])
def test_a_reader_may_write_torch(gap):
    """Then the functions get tensors, and so does what one hands to the other."""
    expected = lab_positions.run(draws=2)["lab.gap_with"]
    assert lab_positions.run(attend_torch, gap, draws=2)["lab.gap_with"] == pytest.approx(expected)
