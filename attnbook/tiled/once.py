"""A calculation that cannot be differentiated, and says so instead of passing for a constant.

`torch.autograd.function.once_differentiable` does not: where the gradient that comes in needs no gradient, as that of a
sum, what goes out is a constant although it depends on the inputs, and a second derivative is silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbook.tiled.uncast import uncast


class Once(torch.autograd.Function):
    """`Once.apply(name, calculate, *tensors)` is calculate(*tensors); whoever differentiates it gets a RuntimeError."""

    @staticmethod
    def forward(name: str, calculate: Callable[..., Any], *tensors: Tensor | None) -> Any:
        with uncast(tensors[0]):  # a backward pass inside an autocast region
            return calculate(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> None:
        raise RuntimeError(
            f"attnbook.tiled.{ctx.name} can be differentiated once: its gradient is calculated in tiles and has no "
            f"gradient of its own; attnbook.reference can be differentiated again"
        )
