"""Softmax: stable, exact where it can be worked out by hand, zeros for a row of −inf, and never NaN in its gradient."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbook.errors import DTypeError
from attnbook.reference import logsumexp, naive_softmax, softmax
from tests.tolerance import as_float64


def test_by_hand():
    """Logits 0 and ln 3 give ¼ and ¾; their log-sum-exp is ln 4."""
    x = np.array([0.0, math.log(3)])
    np.testing.assert_allclose(softmax(x), [0.25, 0.75], rtol=1e-15)
    assert logsumexp(x) == pytest.approx(math.log(4), rel=1e-15)


def test_dtype_and_library_are_kept(make, normal):
    """Softmax returns what it was given; log-sum-exp float32, or float64 for float64."""
    x = make(normal((3, 5)))
    assert type(softmax(x)) is type(x)
    assert softmax(x).dtype == x.dtype
    assert str(logsumexp(x).dtype).endswith("float64" if str(x.dtype).endswith("float64") else "float32")


def test_near_the_truth_in_every_dtype(make, normal):
    """One rounding of the input's dtype away from float64, and rows sum to 1 within roundings."""
    x = make(normal((11, 13)))
    z = as_float64(x)
    exact = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    eps = torch.finfo(torch.as_tensor(x).dtype).eps
    assert np.abs(as_float64(softmax(x)) - exact).max() <= 2 * eps * exact.max()
    assert np.abs(as_float64(softmax(x)).sum(-1) - 1).max() <= 13 * eps


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_the_axis_is_the_one_that_sums_to_one(normal, axis):
    """Sums along `axis` are 1, and along no other."""
    x = normal((3, 5, 7))
    for other in range(3):
        sums_to_one = np.allclose(softmax(x, axis=axis).sum(other), 1)
        assert sums_to_one == (other == axis % 3)
    np.testing.assert_allclose(logsumexp(x, axis=axis), np.log(np.exp(x).sum(axis)), rtol=1e-13)


def test_large_scores_do_not_overflow(make):
    """1000 and 1000 share equally where the naive formula gives NaN, in every dtype."""
    x = make([1000.0, 1000.0, 0.0])
    assert as_float64(softmax(x)).tolist() == [0.5, 0.5, 0.0]
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(as_float64(naive_softmax(x))[:2]).all()


def test_very_negative_rows_are_not_empty(make):
    """−6e4 and −6e4 share equally; the naive formula divides 0 by 0."""
    x = make([-6e4, -6e4])
    assert as_float64(softmax(x)).tolist() == [0.5, 0.5]
    with np.errstate(invalid="ignore"):
        assert np.isnan(as_float64(naive_softmax(x))).all()


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=7), st.floats(-1000, 1000))
def test_a_shift_changes_nothing(scores, shift):
    """softmax(x + c) = softmax(x), to the rounding of x + c; log-sum-exp moves by c."""
    x = np.array(scores)
    rounding = 4 * (1030 * np.finfo(float).eps)
    assert np.abs(softmax(x + shift) - softmax(x)).max() <= rounding
    assert abs(logsumexp(x + shift) - logsumexp(x) - shift) <= rounding


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=7))
def test_equal_to_the_naive_formula_where_that_works(scores):
    """Subtracting the maximum changes no value in exact arithmetic, and only roundings here."""
    x = np.array(scores)
    np.testing.assert_allclose(softmax(x), naive_softmax(x), rtol=200 * np.finfo(float).eps, atol=0)


def test_a_row_of_minus_infinity_is_zeros(make):
    """Only −inf: weights 0, log-sum-exp −inf; the row beside it is untouched."""
    x = make([[-np.inf, -np.inf], [0.0, -np.inf]])
    assert as_float64(softmax(x)).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert as_float64(logsumexp(x)).tolist() == [-np.inf, 0.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_plus_infinity_are_not_hidden(bad):
    """They make their own row NaN, and only that."""
    with np.errstate(invalid="ignore"):
        weight = softmax(np.array([[0.0, bad], [0.0, 0.0]]))
    assert np.isnan(weight[0]).all()
    assert weight[1].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_empty_axes(make, shape):
    """Nothing in, nothing out; the log-sum-exp of nothing is −inf."""
    x = make(np.zeros(shape))
    assert softmax(x).shape == shape
    lse = logsumexp(x)
    assert tuple(lse.shape) == shape[:-1]
    assert (as_float64(lse) == -np.inf).all()


@pytest.mark.parametrize("function", [softmax, logsumexp, naive_softmax])
@pytest.mark.parametrize("x", [np.array([1, 2]), torch.tensor([1, 2]), np.array([True, False]), torch.tensor([1j])])
def test_numbers_that_are_not_real_floats_are_refused(function, x):
    """The error names the dtype that came."""
    with pytest.raises(DTypeError, match=rf"^x has dtype {x.dtype}: expected a floating-point dtype$"):
        function(x)


@pytest.mark.parametrize("function", [softmax, naive_softmax, logsumexp])
def test_gradients(function):
    """First and second derivatives agree with finite differences."""
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("function", [softmax, logsumexp])
def test_the_gradient_of_a_row_of_minus_infinity_is_zero(function):
    """No NaN comes back, although the value is 0/0 or log 0."""
    x = torch.tensor([[-torch.inf] * 3, [0.0, 1.0, -torch.inf]], requires_grad=True)
    out = function(x)
    torch.where(torch.isfinite(out), out, 0.0).square().sum().backward()
    assert x.grad[0].tolist() == [0.0, 0.0, 0.0]
    assert torch.isfinite(x.grad).all()
    assert x.grad[1, 0] != 0
    x.grad = None
    function(x).backward(torch.ones_like(out))  # even where −inf itself is asked for its gradient
    assert torch.isfinite(x.grad).all()
    assert x.grad[0].tolist() == [0.0, 0.0, 0.0]
