"""Between the mean and the stored value: the closed form, and where the likeness to a dictionary ends."""

import math

import pytest
import torch

from attnbook.experiments import soft_dictionary


@pytest.fixture(scope="module")
def found():
    """One run, a little smaller than the chapter's."""
    return soft_dictionary.run(repeats=3)


def test_the_weight_of_the_key_asked_for(found):
    """e^s / (e^s + n − 1) for n orthonormal keys."""
    for scale in (1, 2, 4, 8):
        expected = math.exp(scale) / (math.exp(scale) + 7)
        assert found[f"names.own_weight_{scale}"] == pytest.approx(expected, rel=1e-10)
    assert found["names.crowd_weight_orthonormal"] == pytest.approx(math.exp(8) / (math.exp(8) + 255), rel=1e-5)


def test_the_error_falls_as_the_scale_grows(found):
    """Strictly, from the mean's at 0 to rounding at 32."""
    errors = found.data["errors"]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-11
    assert found["names.lookup_exact_32_float32"] is True
    assert found["names.mean_error"] < 1e-12


def test_where_the_likeness_ends(found):
    """A stranger gets the mean, twins share, order does not matter."""
    for name in ("stranger_error", "order_error"):
        assert found[f"names.{name}"] < 1e-12
    assert found["names.twins_error"] < 1e-10


def test_an_entry_for_nothing(found):
    """It takes the stranger's answer to nearly 0 and leaves known keys alone."""
    assert found["names.null_stranger"] == pytest.approx(8 / (8 + math.exp(8)), rel=1e-6)
    assert found["names.null_known_error"] < 1e-6
    assert found["names.null_is_a_sink"] is True


def test_ten_times_as_many_keys_need_ln_10_more(found):
    """The scale found by bisection."""
    assert found["names.tenfold_scale"] == pytest.approx(math.log(10), abs=1e-6)
    assert soft_dictionary._scale_for_99(torch.eye(12)) == pytest.approx(math.log(99 * 11), abs=1e-6)


def test_crowds_hurt_less_in_more_dimensions(found):
    """More keys, less weight; more dimensions, more weight."""
    crowd = found.data["crowd"]
    for curve in crowd.values():
        assert list(curve.values()) == sorted(curve.values(), reverse=True)
    assert crowd[16][256] < crowd[64][256] < crowd[256][256] < found["names.crowd_weight_orthonormal"]
