"""The lab's step 3: where a softmax breaks is found for any function, and never is for one that is right."""

import numpy as np
import pytest

from attnbook.experiments import lab_softmax
from attnbook.experiments.lab_softmax import breaks
from attnbook.reference import naive_softmax, softmax


@pytest.fixture(scope="module")
def found():
    return lab_softmax.run(farthest=211)


def test_limits_lie_where_exp_ends(found):
    """Just above the logarithms of each type's largest and smallest number."""
    for name in ("float16", "float32"):
        assert found[f"lab.naive_high_{name}"] == int(np.log(np.finfo(name).max.astype(float))) + 1
    assert found["lab.naive_low"] == 104
    assert found["lab.mean_breaks"] == 2 * found["lab.naive_high_float32"]
    assert found["lab.absolute_breaks"] * 2 == found["lab.naive_low"]
    assert found["lab.naive_high_float64"] == 212  # it does not, within what was asked


def test_the_sum_overflows_before_a_term_does(found):
    """Many equal scores: n·e^s is too large at a smaller s than e^s, and what is divided by inf is 0."""
    assert found["lab.naive_many_silent"] == int(np.log(np.finfo("float32").max.astype(float) / lab_softmax.MANY)) + 1
    assert (found["lab.naive_many_sum"], found["lab.naive_many_nan"]) == (0, 89)


def test_a_right_softmax_never_breaks(found):
    """Nor does its weight move by a bit while the scores stay as far apart."""
    assert found["lab.softmax_holds"] is True
    assert found["lab.softmax_is_steady"] is True


@pytest.mark.parametrize("fn", [naive_softmax, *lab_softmax.WRONG.values()], ids=["nothing", *lab_softmax.WRONG])
def test_the_readers_function_is_looked_at(fn):
    """One that subtracts nothing, or something else than the maximum, does not hold."""
    assert lab_softmax.run(fn, farthest=211)["lab.softmax_holds"] is False


def test_a_row_may_be_asked_for_something_else():
    """`bad` decides; what never happens is one beyond the farthest."""
    assert breaks(softmax, "high", "float64", 7, bad=lambda w: w < 0.01) == 5
    assert breaks(softmax, "high", "float64", 7) == 8
