"""Four small choices in a norm's formula: where ε stands, which variance, how it is summed, in which type.

All are right on ordinary tokens to a few parts in a thousand, and each has a token on which it is wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.measure import experiment, measure
from attnbook.reference import layer_norm, rms_norm

SMALL = 1e-3
"""The standard deviation of a token beside which ε is large inside the root, and small outside."""


@experiment
def run(seed: int = 0, d: int = 64, eps: float = 1e-5, tokens: int = 101, far: float = 40000.0) -> dict[str, Tensor]:
    """Random tokens (tokens, d). Data: `far` what they become near `far`, `one_pass` by the short formula."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, d, generator=generator)
    hand = torch.tensor([1.0, 3.0, 5.0, 7.0])
    measure("norm.hand_layer", layer_norm(hand, eps=0.0)[0])
    measure("norm.hand_rms", rms_norm(hand, eps=0.0)[0])
    measure("norm.far_place", far)
    _epsilon(x, eps)
    _biased(x, d)
    measure("norm.shift_rms_moves", bool((rms_norm(x + 1) - rms_norm(x)).abs().max() > 0.3))
    measure("norm.shift_layer_error", (layer_norm(x + 1) - layer_norm(x)).abs().max())
    data = _far(x, far, eps)
    _low_types(x, generator)
    return data


def _epsilon(x: Tensor, eps: float) -> None:
    """A token of equal components, and one that is very small: inside the root ε is a variance, outside a size."""
    equal = torch.full((1, x.shape[-1]), 3.0)
    measure("norm.equal_components", layer_norm(equal, eps=eps).abs().max())
    measure("norm.equal_without_eps_nans", int(layer_norm(equal, eps=0.0).isnan().sum()))
    measure("norm.small_size", SMALL)
    small = x / x.std(-1, correction=0, keepdim=True) * SMALL  # of variance 1e-6
    root = small.var(-1, correction=0, keepdim=True).sqrt()
    outside = (small - small.mean(-1, keepdim=True)) / (root + eps)
    measure("norm.eps_inside_small", layer_norm(small, eps=eps).std(-1, correction=0).mean())
    measure("norm.eps_outside_small", outside.std(-1, correction=0).mean())
    gap = (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0, keepdim=True) + eps) - layer_norm(x, eps=eps)
    measure("norm.eps_ordinary_gap", gap.abs().max())


def _biased(x: Tensor, d: int) -> None:
    """Divided by d or by d − 1: the same but for a factor, which the next weight may swallow."""
    centred = x - x.mean(-1, keepdim=True)
    unbiased = centred / (x.var(-1, correction=1, keepdim=True) + 1e-5).sqrt()
    ratio = layer_norm(x).std(-1, correction=0) / unbiased.std(-1, correction=0)
    measure("norm.unbiased_ratio", ratio.mean())
    measure("norm.unbiased_ratio_4", _unbiased_ratio(x[:, :4]))
    measure("norm.unbiased_formula", bool((ratio - (d / (d - 1)) ** 0.5).abs().max() < 1e-5))


def _unbiased_ratio(x: Tensor) -> Tensor:
    """How much longer the result is when the variance is divided by the number of components."""
    other = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=1, keepdim=True) + 1e-5).sqrt()
    ratio: Tensor = (layer_norm(x).double().square().sum() / other.double().square().sum()).sqrt()
    return ratio


def _far(x: Tensor, far: float, eps: float) -> dict[str, Tensor]:
    """The same tokens moved to `far`, in two passes and in one: mean of squares minus square of the mean."""
    moved = x + far
    exact = layer_norm(moved.double(), eps=eps)
    here = torch.tensor(far)
    measure("norm.far_square_step", torch.nextafter(here**2, here.new_tensor(torch.inf)) - here**2)
    two = layer_norm(moved, eps=eps)
    measure("norm.far_two_pass_error", (two - exact).abs().max())
    variance = moved.square().mean(-1, keepdim=True) - moved.mean(-1, keepdim=True).square()
    one = (moved - moved.mean(-1, keepdim=True)) / (variance + eps).sqrt()
    measure("norm.far_one_pass_negative", bool((variance < 0).any()))
    measure("norm.far_one_pass_nan", bool(one.isnan().any()))
    sizes = one.std(-1, correction=0)
    measure("norm.far_one_pass_right", int(((sizes - 1).abs() < 0.1).sum()))
    return {"far": two, "one_pass": one, "variance": variance[:, 0]}


def _low_types(x: Tensor, generator: torch.Generator) -> None:
    """RMSNorm of float16 and bfloat16 tokens, calculated in float32 or in the type itself."""
    large = (300 * x).half()
    measure("norm.half_low_zeros", bool((_plain_rms(large) == 0).all()))
    measure("norm.half_error", (rms_norm(large).double() - rms_norm(large.double())).abs().max())
    low = x.bfloat16()
    exact = rms_norm(low.double())
    measure("norm.bfloat16_error", (rms_norm(low).double() - exact).square().mean().sqrt())
    measure("norm.bfloat16_low_error", (_plain_rms(low).double() - exact).square().mean().sqrt())
    measure("norm.bfloat16_twice", bool(_rms(_plain_rms(low), exact) > 1.3 * _rms(rms_norm(low), exact)))


def _rms(got: Tensor, exact: Tensor) -> float:
    return float((got.double() - exact).square().mean().sqrt())


def _plain_rms(x: Tensor, eps: float = 1e-6) -> Tensor:
    """The formula, every step rounded to the dtype of x: of float16 the squares overflow above 255."""
    return x / ((x * x).mean(-1, keepdim=True) + eps).sqrt()
