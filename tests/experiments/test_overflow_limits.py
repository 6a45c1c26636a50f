"""Where exp leaves each floating-point type, and scores that are inf before softmax sees them."""

import math

import pytest
import torch

from attnbook.experiments import overflow_limits


@pytest.fixture(scope="module")
def found():
    return overflow_limits.run()


@pytest.mark.parametrize("dtype", overflow_limits.DTYPES)
def test_the_limit_is_the_logarithm_of_the_largest_number(found, dtype):
    """To the spacing of the type's own numbers there."""
    limit = found[f"softmax.exp_limit_{str(dtype).removeprefix('torch.')}"]
    largest = math.log(torch.finfo(dtype).max)
    assert limit == pytest.approx(largest, abs=largest * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", overflow_limits.DTYPES)
def test_the_next_number_fails(found, dtype):
    """exp is finite, and not zero, at the limits; one number further it is inf, and 0."""
    name = str(dtype).removeprefix("torch.")
    top, bottom = (torch.tensor(found[f"softmax.exp_{end}_{name}"], dtype=dtype) for end in ("limit", "zero"))
    infinity = torch.tensor(math.inf, dtype=dtype)
    assert torch.exp(top).isfinite()
    assert torch.exp(torch.nextafter(top, infinity)).isinf()
    assert torch.exp(bottom) > 0
    assert torch.exp(torch.nextafter(bottom, -infinity)) == 0


def test_an_infinite_score_is_beyond_saving_and_float32_scores_never_get_there(found):
    """Subtracting the maximum gives inf − inf; attention calculates in float32 instead."""
    assert found["softmax.exp_1000"] == math.inf
    assert found["softmax.float16_score_is_inf"] is True
    assert found["softmax.subtracting_does_not_save_inf"] is True
    assert found["softmax.float32_scores_save_it"] is True


def test_many_small_weights_add_up_unless_they_are_float16(found):
    """1000 weights of e⁻²⁰ on values of 6e4 make 0.12; e⁻²⁰ is 0 in float16."""
    assert found["softmax.half_weights_output"] == 0
    expected = 1000 * 6e4 * math.exp(-20) / (1 + 1000 * math.exp(-20))
    assert found["softmax.single_weights_output"] == pytest.approx(expected, rel=1e-3)
