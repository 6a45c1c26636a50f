"""LayerNorm, RMSNorm and BatchNorm: what they take together, and numbers at which a careless variance fails."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.norms import (
    BatchNorm,
    LayerNorm,
    RMSNorm,
    batch_norm,
    batch_statistics,
    layer_norm,
    rms_norm,
)
from tests.tolerance import as_float64, assert_right


def exact_layer_norm(x, weight=1.0, bias=0.0, eps=1e-5):
    """The definition, one token at a time in float64."""
    x = as_float64(x)
    out = np.empty_like(x)
    for at in np.ndindex(x.shape[:-1]):
        mean = sum(x[at]) / x.shape[-1]
        variance = sum((x[at] - mean) ** 2) / x.shape[-1]
        out[at] = (x[at] - mean) / np.sqrt(variance + eps)
    return out * as_float64(weight) + as_float64(bias)


def exact_rms_norm(x, weight=1.0, eps=1e-6):
    """The definition in float64."""
    x = as_float64(x)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * as_float64(weight)


@pytest.fixture
def vectors(make, normal):
    """x (2, 5, 7), weight and bias (7,) of one library and dtype."""
    return make(normal((2, 5, 7)) * 3 + 2), make(normal(7)), make(normal(7))


def test_layer_norm_is_right_in_every_dtype(vectors):
    """Against the definition, and not further off than torch's own in that dtype."""
    x, weight, bias = vectors
    out = layer_norm(x, weight, bias)
    assert type(out) is type(x)
    assert out.dtype == x.dtype
    exact = exact_layer_norm(x, weight, bias)
    baseline = F.layer_norm(*(torch.as_tensor(x), (7,), torch.as_tensor(weight), torch.as_tensor(bias)))
    assert_right(out, exact, baseline)
    wrong = {
        "zeros": np.zeros_like(exact),
        "unbiased variance": (exact - as_float64(bias)) * np.sqrt(6 / 7) + as_float64(bias),
        "no bias": exact - as_float64(bias),
        "over the tokens": exact_layer_norm(as_float64(x).swapaxes(1, 2)).swapaxes(1, 2),
    }
    for numbers in wrong.values():
        with pytest.raises(AssertionError):
            assert_right(torch.from_numpy(numbers).to(torch.as_tensor(x).dtype), exact, baseline)


def test_rms_norm_is_right_in_every_dtype(vectors):
    """Against the definition, with the weight and with Gemma's 1 + weight."""
    x, weight, _ = vectors
    out = rms_norm(x, weight)
    assert out.dtype == x.dtype
    baseline = F.rms_norm(torch.as_tensor(x), (7,), torch.as_tensor(weight), eps=1e-6)
    assert_right(out, exact_rms_norm(x, weight), baseline)
    exact = exact_rms_norm(x, 1 + as_float64(weight))
    baseline = F.rms_norm(torch.as_tensor(x), (7,), 1 + torch.as_tensor(weight), eps=1e-6)
    assert_right(rms_norm(x, weight, one_plus_weight=True), exact, baseline)
    with pytest.raises(AssertionError):
        assert_right(out, exact, baseline)


def test_batch_norm_is_right_in_every_dtype(vectors):
    """Each component by its own mean and variance over all tokens: torch's with the axes turned."""
    x, weight, bias = vectors
    exact = exact_layer_norm(as_float64(x).reshape(10, 7).T).T.reshape(2, 5, 7)
    exact = exact * as_float64(weight) + as_float64(bias)
    plain = [torch.as_tensor(z) for z in (x, weight, bias)]
    baseline = F.batch_norm(plain[0].mT, None, None, plain[1], plain[2], training=True).mT
    out = batch_norm(x, weight, bias)
    assert out.dtype == x.dtype
    assert_right(out, exact, baseline)
    with pytest.raises(AssertionError):
        assert_right(layer_norm(x, weight, bias), exact, baseline)
    mean, variance = batch_statistics(x)
    assert_right(batch_norm(x, weight, bias, mean=mean, variance=variance), exact, baseline)


def test_variance_around_forty_thousand(make):
    """[40000 … 40003] in float32 has variance 1.25; the mean of squares minus the squared mean does not."""
    x = np.array([40000, 40001, 40002, 40003], dtype=np.float32)
    out = layer_norm(x, eps=0.0)
    np.testing.assert_allclose(((x - x.mean()) / out) ** 2, 1.25, rtol=1e-6)
    np.testing.assert_allclose(out, np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25), rtol=1e-6)
    one_pass = (x * x).mean() - x.mean() ** 2
    assert abs(one_pass - 1.25) > 1  # what the two passes are for
    _, variance = batch_statistics(x[:, None])
    assert variance.tolist() == [1.25]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 17), st.floats(-1e4, 1e4), st.floats(0.01, 1e4), st.integers(0, 1000))
def test_properties(d, shift, size, seed):
    """LayerNorm: mean 0, variance 1, blind to shift and size. RMSNorm: mean square 1, blind to size, not to shift."""
    x = np.random.default_rng(seed).standard_normal((3, d))
    out = layer_norm(x, eps=0.0)
    np.testing.assert_allclose(out.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose((out * out).mean(-1), 1, rtol=1e-9)
    np.testing.assert_allclose(layer_norm(x * size + shift, eps=0.0), out, atol=1e-6)
    rms = rms_norm(x, eps=0.0)
    np.testing.assert_allclose((rms * rms).mean(-1), 1, rtol=1e-9)
    np.testing.assert_allclose(rms_norm(x * size, eps=0.0), rms, atol=1e-9)
    assert np.abs(rms_norm(x + 3, eps=0.0) - rms).max() > 1e-3


def test_a_token_does_not_see_the_batch_except_in_batch_norm(normal):
    """Alone or among others, LayerNorm and RMSNorm give the same bits; BatchNorm in training does not."""
    x = normal((3, 5, 7))
    for norm in (layer_norm, rms_norm):
        np.testing.assert_array_equal(norm(x)[1:2, :3], norm(x[1:2, :3]))
    assert np.abs(batch_norm(x)[1:2] - batch_norm(x[1:2])).max() > 0.1
    other = x.copy()
    other[0, 0] += 5  # another token, of another sequence
    assert np.abs(batch_norm(other)[2] - batch_norm(x)[2]).max() > 0.01
    mean, variance = batch_statistics(x)
    given = {"mean": mean, "variance": variance}
    np.testing.assert_array_equal(batch_norm(other, **given)[2], batch_norm(x, **given)[2])


def test_epsilon_is_inside_the_root_and_matters(normal):
    """A constant token gives 0, not NaN; of a tiny one ε decides the size."""
    assert (layer_norm(np.full((1, 5), 3.0)) == 0).all()
    assert (rms_norm(np.zeros((1, 5))) == 0).all()
    x = np.array([[-1e-3, 1e-3]])  # variance 1e-6, mean square 1e-6
    np.testing.assert_allclose(layer_norm(x, eps=3e-6)[0, 1], 1e-3 / np.sqrt(4e-6), rtol=1e-12)
    np.testing.assert_allclose(rms_norm(x, eps=3e-6)[0, 1], 1e-3 / np.sqrt(4e-6), rtol=1e-12)
    np.testing.assert_allclose(batch_norm(x.T, eps=3e-6)[1, 0], 1e-3 / np.sqrt(4e-6), rtol=1e-12)


def test_large_half_precision_does_not_overflow():
    """Squares of float16 near its largest number are taken in float32."""
    x = torch.tensor([[60000.0, -60000.0, 30000.0]], dtype=torch.float16)
    for norm in (layer_norm, rms_norm):
        assert torch.isfinite(norm(x)).all()
        assert (norm(x) != 0).all()


@pytest.mark.parametrize("norm", [layer_norm, rms_norm, batch_norm])
def test_gradcheck(norm):
    """Differentiable in x and all vectors, twice."""
    g = torch.Generator().manual_seed(3)
    args = [torch.randn(*s, dtype=torch.float64, generator=g, requires_grad=True) for s in ((2, 3, 5), (5,), (5,))]
    args = args[: 2 if norm is rms_norm else 3]
    assert torch.autograd.gradcheck(norm, args)
    assert torch.autograd.gradgradcheck(norm, args)


def test_a_float32_weight_serves_half_precision(normal):
    """The weight is not rounded to the dtype of x first; the output keeps the dtype of x."""
    x, weight = torch.from_numpy(normal((3, 7))).bfloat16(), torch.from_numpy(normal(7)).float()
    out = rms_norm(x, weight)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, (rms_norm(x.float(), weight)).bfloat16())
    assert torch.equal(layer_norm(x, weight), layer_norm(x.float(), weight).bfloat16())


@pytest.mark.parametrize("shape", [(0, 5, 7), (2, 0, 7)])
def test_no_tokens(shape):
    """Nothing to normalise is nothing, not a warning; BatchNorm needs tokens unless it is given statistics."""
    x = np.zeros(shape)
    assert layer_norm(x).shape == rms_norm(x).shape == shape
    assert batch_norm(x, mean=np.zeros(7), variance=np.ones(7)).shape == shape


# Modules


def random_state(module):
    """The module with random parameters, positive where a variance."""
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=g) + 0.5 if "var" in name else torch.randn(value.shape))
    return module


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (nn.LayerNorm(7), LayerNorm(7)),
        (nn.LayerNorm(7, bias=False, eps=0.1), LayerNorm(7, 0.1, bias=False)),
        (nn.RMSNorm(7, eps=1e-6), RMSNorm(7)),
    ],
)
def test_modules_load_torchs_state_and_agree(theirs, ours):
    """Same names, same numbers, same gradients."""
    ours.load_state_dict(random_state(theirs).state_dict())
    x = torch.randn(2, 3, 7, requires_grad=True)
    torch.testing.assert_close(ours(x), theirs(x))
    for expected, got in zip(
        torch.autograd.grad(theirs(x).square().sum(), [x, *theirs.parameters()]),
        torch.autograd.grad(ours(x).square().sum(), [x, *ours.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.1, 0.5, None])
def test_batch_norm_module_runs_as_torchs(momentum):
    """Training step by step: outputs, running mean, unbiased running variance, count; then evaluation."""
    theirs, ours = random_state(nn.BatchNorm1d(7, momentum=momentum)), BatchNorm(7, momentum=momentum)
    ours.load_state_dict(theirs.state_dict())
    for _ in range(3):
        x = torch.randn(2, 3, 7) * 2 + 1
        torch.testing.assert_close(ours(x), theirs(x.mT).mT)
        for name, expected in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], expected, msg=name)
    ours.eval()
    theirs.eval()
    before = ours.running_mean.clone()
    x = torch.randn(1, 1, 7)  # one token will do now
    torch.testing.assert_close(ours(x), theirs(x.mT).mT)
    assert torch.equal(ours.running_mean, before)


def test_training_and_evaluation_differ():
    """The same batch, two modes, two outputs: what the mode is for, and a trap."""
    norm = BatchNorm(7)
    x = torch.randn(2, 3, 7) * 3
    trained = norm(x)
    assert (norm.eval()(x) - trained).abs().max() > 0.1


def test_module_options():
    """Starting values make the plain norm, also with Gemma's weight around 0; each option is shown and is used."""
    x = torch.randn(2, 7)
    gemma = RMSNorm(7, one_plus_weight=True)
    torch.testing.assert_close(gemma(x), rms_norm(x))
    torch.testing.assert_close(RMSNorm(7)(x), rms_norm(x))
    torch.testing.assert_close(LayerNorm(7)(x), layer_norm(x))
    assert (LayerNorm(7, 1.0)(x) - LayerNorm(7)(x)).abs().max() > 0.01
    assert (RMSNorm(7, 1.0)(x) - RMSNorm(7)(x)).abs().max() > 0.01
    assert (BatchNorm(7, 1.0)(x) - BatchNorm(7)(x)).abs().max() > 0.01
    assert repr(gemma) == "RMSNorm(7, eps=1e-06, one_plus_weight=True)"
    assert repr(LayerNorm(7)) == "LayerNorm(7, eps=1e-05)"
    assert repr(BatchNorm(7)) == "BatchNorm(7, eps=1e-05, momentum=0.1)"
    for module in (
        LayerNorm(7, dtype=torch.float64),
        RMSNorm(7, dtype=torch.float64),
        BatchNorm(7, dtype=torch.float64),
    ):
        assert {p.dtype for p in module.parameters()} == {torch.float64}


# Bad input

X = np.ones((2, 3, 7))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: layer_norm(X[..., :0]),
            ShapeError,
            "x has shape (2, 3, 0): expected at least 1 component along the last axis (axis d)",
        ),
        (lambda: rms_norm(np.array(1.0)), ShapeError, "x has shape (): expected at least 1 component along"),
        (lambda: layer_norm(X, np.ones(5)), ShapeError, "weight has shape (5,) but x has 7 components (axis d): expec"),
        (
            lambda: layer_norm(X, np.ones(7), np.ones((7, 1))),
            ShapeError,
            "bias has shape (7, 1) but x has 7 components",
        ),
        (lambda: rms_norm(X, np.ones(1)), ShapeError, "weight has shape (1,) but x has 7 components (axis d): expec"),
        (lambda: batch_norm(X, mean=np.ones(3), variance=np.ones(7)), ShapeError, "mean has shape (3,) but x has 7"),
        (lambda: BatchNorm(5)(torch.ones(2, 7)), ShapeError, "weight has shape (5,) but x has 7 components (axis d)"),
        (lambda: batch_norm(X[:1, :1]), ShapeError, "x has 1 tokens (all axes but d): expected at least 2 to take a v"),
        (lambda: BatchNorm(7)(torch.ones(0, 7)), ShapeError, "x has 0 tokens (all axes but d): expected at least 2"),
        (lambda: batch_norm(X, mean=np.ones(7)), ValueError, "mean and variance belong together: expected both or n"),
        (lambda: layer_norm(X.astype(int)), DTypeError, "x has dtype int64: expected a floating-point dtype"),
        (lambda: batch_statistics(X.astype(int)), DTypeError, "x has dtype int64: expected a floating-point dtype"),
        (lambda: rms_norm(X, np.ones(7, int)), DTypeError, "weight has dtype int64: expected a floating-point dtype"),
        (lambda: layer_norm(X, eps=-1e-5), ValueError, "eps is -1e-05: expected a finite number, at least 0"),
        (lambda: rms_norm(X, eps=float("nan")), ValueError, "eps is nan: expected a finite number, at least 0"),
        (lambda: BatchNorm(7, momentum=1.5), ValueError, "momentum is 1.5: expected 0 to 1, or None for the average"),
    ],
)
def test_bad_input_is_named(call, error, text):
    """One error, with the axis, what was expected and what came."""
    with pytest.raises(error, match=re.escape(text)):
        call()
