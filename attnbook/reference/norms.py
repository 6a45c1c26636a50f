"""Normalising: bring numbers to mean 0 and variance 1. The norms differ in which numbers they take together.

    x (b, t, d)       layer_norm    the d components of one token            the same whatever else is in the batch
                      rms_norm      the same, without subtracting the mean
                      batch_norm    one component, over all tokens           depends on the batch; in evaluation, on a
                                                                             running average kept from training

What stands out: the variance is taken in two passes, mean first, then the squares of what is left. The one-pass form,
mean of squares minus square of the mean, loses everything near 40 000 in float32, where squares have steps of 128. The
variance is the biased one (divided by n), and ε is added inside the root, as in the papers and in torch.

All is calculated in float32 (float64 for float64 input) and rounded to the dtype of x once, at the very end, after
weight and bias. Squares of float32 above 1.8e19 overflow, as they do in torch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.errors import ShapeError
from attnbook.reference.arrays import Array, check_floating, namespace, working_dtype


def layer_norm(x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5) -> Array:
    """(x − mean) / √(variance + eps) · weight + bias, each token by its own mean and variance over its components.

    x (…, d), weight and bias (d,) -> (…, d) in the dtype of x. Ba, Kiros and Hinton 2016, equation 4; ε as in torch.
    Raises ShapeError for d = 0 or a weight of another length, DTypeError for integers, ValueError for a negative eps.
    """
    xp = namespace(x, weight, bias)
    z = _begin(x, eps, weight=weight, bias=bias)
    centred, _ = _centred(z, -1)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return _finish(centred / xp.sqrt(variance + eps), x, weight, bias)


def rms_norm(x: Array, weight: Array | None = None, *, eps: float = 1e-6, one_plus_weight: bool = False) -> Array:
    """Of each token, x / √(mean of x² + eps) · weight: LayerNorm without subtracting the mean and without a bias.

    x (…, d), weight (d,) -> (…, d) in the dtype of x. `one_plus_weight` multiplies by 1 + weight, as Gemma does, where
    weights start at 0. The product with the weight is in float32 too, before the one rounding (Gemma, torch); Llama
    rounds once more before the weight. Zhang and Sennrich 2019, equation 4.
    Raises ShapeError for d = 0 or a weight of another length, DTypeError for integers, ValueError for a negative eps.
    """
    xp = namespace(x, weight)
    z = _begin(x, eps, weight=weight)
    z = z / xp.sqrt(xp.mean(z * z, axis=-1, keepdims=True) + eps)
    if weight is not None and one_plus_weight:
        weight = 1 + xp.astype(weight, z.dtype)
    return _finish(z, x, weight, None)


def batch_statistics(x: Array) -> tuple[Array, Array]:
    """The mean and the biased variance of each component over all tokens: x (…, d) -> (d,) twice, float32 or float64.

    Raises ShapeError for fewer than 2 tokens, which have no spread, DTypeError for integers.
    """
    check_floating("x", x)
    xp = namespace(x)
    n = math.prod(int(size) for size in x.shape[:-1])
    if n < 2:
        raise ShapeError(f"x has {n} tokens (all axes but d): expected at least 2 to take a variance of")
    z = xp.reshape(xp.astype(x, working_dtype("x", x)), (n, int(x.shape[-1])))
    centred, mean = _centred(z, 0)
    return xp.squeeze(mean, axis=0), xp.mean(centred * centred, axis=0)


def batch_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    mean: Array | None = None,
    variance: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """(x − mean) / √(variance + eps) · weight + bias, each component by its mean and variance over all tokens.

    x (…, d), all others (d,) -> (…, d) in the dtype of x. Without `mean` and `variance` they are the batch's own, as in
    training: every token then depends on all others. In evaluation, give the running ones (`BatchNorm`). Components lie
    along the last axis here; torch's BatchNorm1d wants them along axis 1. Ioffe and Szegedy 2015, algorithms 1 and 2.
    Raises ShapeError for d = 0, a vector of another length or fewer than 2 tokens without given statistics, DTypeError
    for integers, ValueError for a negative eps or one statistic without the other.
    """
    xp = namespace(x, weight, bias, mean, variance)
    z = _begin(x, eps, weight=weight, bias=bias, mean=mean, variance=variance)
    if (mean is None) != (variance is None):
        raise ValueError("mean and variance belong together: expected both or neither")
    if mean is None or variance is None:
        mean, variance = batch_statistics(x)
    mean, variance = xp.astype(mean, z.dtype), xp.astype(variance, z.dtype)
    return _finish((z - mean) / xp.sqrt(variance + eps), x, weight, bias)


def _begin(x: Array, eps: float, **vectors: Array | None) -> Array:
    """Check everything; x in the dtype to calculate in."""
    working = working_dtype("x", x)
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps!r}: expected a finite number, at least 0")
    if len(x.shape) < 1 or x.shape[-1] == 0:
        raise ShapeError(f"x has shape {tuple(x.shape)}: expected at least 1 component along the last axis (axis d)")
    d = int(x.shape[-1])
    for name, vector in vectors.items():
        if vector is not None:
            check_floating(name, vector)
            if tuple(vector.shape) != (d,):
                raise ShapeError(
                    f"{name} has shape {tuple(vector.shape)} but x has {d} components (axis d): expected ({d},)"
                )
    return namespace(x).astype(x, working)


def _centred(z: Array, axis: int) -> tuple[Array, Array]:
    """What z is more than its mean along an axis, and that mean: taken twice, for of large numbers it is rounded."""
    xp = namespace(z)
    about = xp.mean(z, axis=axis, keepdims=True)
    rest = xp.mean(z - about, axis=axis, keepdims=True)
    return z - about - rest, about + rest


def _finish(z: Array, x: Array, weight: Array | None, bias: Array | None) -> Array:
    """Weight and bias, then the one rounding to the dtype of x."""
    xp = namespace(x)
    if weight is not None:
        z = z * xp.astype(weight, z.dtype)
    if bias is not None:
        z = z + xp.astype(bias, z.dtype)
    return xp.astype(z, x.dtype)


class LayerNorm(nn.Module):
    """`layer_norm` with a weight, at first 1, and a bias, at first 0; parameters are named as torch.nn.LayerNorm's."""

    def __init__(self, d: int, eps: float = 1e-5, *, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d, device=device, dtype=dtype))
        self.register_parameter("bias", nn.Parameter(torch.zeros(d, device=device, dtype=dtype)) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (…, d) -> (…, d)."""
        out: Tensor = layer_norm(x, self.weight, self.bias, eps=self.eps)
        return out

    def extra_repr(self) -> str:
        """The size and ε."""
        return f"{self.weight.shape[0]}, eps={self.eps}"


class RMSNorm(nn.Module):
    """`rms_norm` with a weight, at first 1, or with `one_plus_weight` 0; named as torch.nn.RMSNorm's."""

    def __init__(
        self, d: int, eps: float = 1e-6, *, one_plus_weight: bool = False, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.eps = eps
        self.one_plus_weight = one_plus_weight
        start = 0.0 if one_plus_weight else 1.0
        self.weight = nn.Parameter(torch.full((d,), start, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (…, d) -> (…, d)."""
        out: Tensor = rms_norm(x, self.weight, eps=self.eps, one_plus_weight=self.one_plus_weight)
        return out

    def extra_repr(self) -> str:
        """The size and ε."""
        return f"{self.weight.shape[0]}, eps={self.eps}" + (", one_plus_weight=True" if self.one_plus_weight else "")


class BatchNorm(nn.Module):
    """`batch_norm` with running statistics: the batch's own in training, the running ones in evaluation.

    After each training step running = (1 − momentum) · running + momentum · batch, the variance of the batch unbiased
    there (divided by n − 1), though biased in the step itself: torch's rule. `momentum=None` keeps the plain average of
    all batches. Parameters and buffers are named as torch.nn.BatchNorm1d's, but components lie along the last axis.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self, d: int, eps: float = 1e-5, momentum: float | None = 0.1, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum is {momentum!r}: expected 0 to 1, or None for the average of all batches")
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(d, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(d, device=device, dtype=dtype))
        self.register_buffer("running_mean", torch.zeros(d, device=device, dtype=dtype))
        self.register_buffer("running_var", torch.ones(d, device=device, dtype=dtype))
        self.register_buffer("num_batches_tracked", torch.tensor(0, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (…, d) -> (…, d); in training mode the running statistics take a step."""
        if not self.training:
            mean, variance = self.running_mean, self.running_var
        else:
            mean, variance = batch_statistics(x)
        out: Tensor = batch_norm(x, self.weight, self.bias, mean=mean, variance=variance, eps=self.eps)
        if self.training:
            self._step(mean, variance, x.numel() // x.shape[-1])
        return out

    @torch.no_grad()
    def _step(self, mean: Tensor, variance: Tensor, n: int) -> None:
        self.num_batches_tracked += 1
        share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, batch in ((self.running_mean, mean), (self.running_var, variance * n / (n - 1))):
            running.lerp_(batch.to(running.dtype), share)

    def extra_repr(self) -> str:
        """The size, ε and momentum."""
        return f"{self.weight.shape[0]}, eps={self.eps}, momentum={self.momentum}"
