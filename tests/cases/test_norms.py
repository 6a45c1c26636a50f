"""Norms: a variance far from 0, and what lies near it."""

import numpy as np
import pytest
import torch

from attnbook import reference
from tests.tolerance import as_float64

KINDS = {"numpy": np.asarray, "torch": torch.tensor}
FAR = {
    "onnxruntime#28463": [40_000.0, 40_001.0, 40_002.0, 40_003.0],
    "negative": [-40_000.0, -40_001.0, -40_002.0, -40_003.0],
    "farther": [8_000_000.0, 8_000_001.0, 8_000_002.0, 8_000_003.0],
}


def near_zero(row):
    """The same numbers moved to mean 0, which is exact."""
    return np.asarray(row) - np.mean(row)


@pytest.mark.parametrize("library", KINDS)
@pytest.mark.parametrize("name", FAR)
def test_the_variance_far_from_0(name, library):
    """Of [40000, 40001, 40002, 40003] it is 1.25 in float32: squares, for E x² − (E x)², have steps of 128 there."""
    x = KINDS[library](FAR[name], dtype=np.float32 if library == "numpy" else torch.float32)
    mean, variance = reference.batch_statistics(x[:, None])
    assert mean.tolist() == [np.mean(FAR[name])]
    assert variance.tolist() == [1.25]
    right = near_zero(FAR[name]) / np.sqrt(1.25 + 1e-5)
    for found in (reference.layer_norm(x[None]), reference.batch_norm(x[:, None])):
        np.testing.assert_allclose(as_float64(found).ravel(), right, rtol=1e-6)


@pytest.mark.parametrize("name", FAR)
def test_the_modules_too(name):
    """`LayerNorm`, `BatchNorm` in training and its running variance."""
    x, right = torch.tensor(FAR[name]), near_zero(FAR[name]) / np.sqrt(1.25 + 1e-5)
    np.testing.assert_allclose(as_float64(reference.LayerNorm(4)(x)), right, rtol=1e-6)
    np.testing.assert_allclose(as_float64(reference.BatchNorm(1)(x[:, None])).ravel(), right, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_averaged_in_float32(dtype):
    """Squares of 2000 are beyond float16: mean and variance are float32's, and only the result is rounded."""
    x = torch.tensor([2000.0, 2016.0, 2032.0, 2048.0]).to(dtype)
    right = near_zero(as_float64(x)) / np.sqrt(np.var(as_float64(x)) + 1e-5)
    found = reference.layer_norm(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(as_float64(found), right, rtol=torch.finfo(dtype).eps)
    rms = as_float64(x) / np.sqrt(np.mean(as_float64(x) ** 2) + 1e-6)
    np.testing.assert_allclose(as_float64(reference.rms_norm(x)), rms, rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("value", [0.0, 40_000.0, -1e-30, 1e18])
def test_a_constant_token(value):
    """It has no variance: LayerNorm gives 0, not NaN, and a finite gradient."""
    x = torch.full((2, 5), value, requires_grad=True)
    out = reference.layer_norm(x)
    assert (out == 0).all()
    assert torch.autograd.grad(out[:, 0].sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_gradients_far_from_0(norm):
    """In float32 they are float64's, to the rounding of the input's own distance from 0."""
    found = {}
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor(FAR["onnxruntime#28463"], dtype=dtype, requires_grad=True)
        weigh = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=dtype)
        found[dtype] = torch.autograd.grad((getattr(reference, norm)(x) * weigh).sum(), x)[0]
    torch.testing.assert_close(found[torch.float32].double(), found[torch.float64], rtol=1e-4, atol=1e-7)
