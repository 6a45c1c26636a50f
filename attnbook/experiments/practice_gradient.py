"""A loss that is finite and a gradient that is not: what a probe of the forward pass cannot see, and what can.

A norm with ε outside the root reads a token of zeros, as padding often is: 0 / (√0 + ε) is 0, and the slope of √ at 0
is infinite.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.measure import experiment, measure
from attnbook.probes import overflow

EPS = 1e-6


class Norm(nn.Module):
    """x over its root mean square, ε inside the root or outside."""

    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, d) -> (b, t, d)."""
        square = x.square().mean(-1, keepdim=True)
        return x / (square + EPS).sqrt() if self.inside else x / (square.sqrt() + EPS)


@experiment
def run(t: int = 5, d: int = 8, seed: int = 0) -> Any:
    """Random tokens, the last of them zeros. Data: `report` of the probe, `said` by torch's own search."""
    x = torch.randn(1, t, d, generator=torch.Generator().manual_seed(seed))
    x[:, -1] = 0
    report = overflow(Norm(inside=False), x)
    measure("practice.gradient_probe_passes", report.ok)
    measure("practice.gradient_nans", int(gradient(Norm(inside=False), x).isnan().sum()))
    measure("practice.gradient_inside_nans", int(gradient(Norm(inside=True), x).isnan().sum()))
    said = anomaly(lambda: gradient(Norm(inside=False), x))
    measure("practice.gradient_anomaly_named", "Sqrt" in said)
    measure("practice.gradient_anomaly_quiet", not anomaly(lambda: gradient(Norm(inside=True), x)))
    return {"report": str(report), "said": said}


def gradient(norm: nn.Module, x: Tensor) -> Tensor:
    """What the sum of squares of the output says to x."""
    leaf = x.clone().requires_grad_()
    norm(leaf).square().sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def anomaly(backward: Callable[[], object]) -> str:
    """What torch says when it looks at every step of a backward pass; empty where it says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is slow, and where the forward pass was
        with torch.autograd.detect_anomaly():
            try:
                backward()
            except RuntimeError as error:
                return str(error)
    return ""
