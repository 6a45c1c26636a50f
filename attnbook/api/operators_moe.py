"""The operator of the experts: how many tokens each gets is known only when it runs, so no compiler looks inside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.api import autocast
from attnbook.tiled.moe import experts_backward, experts_forward


@torch.library.custom_op("attnbook::moe_experts", mutates_args=())
def moe_experts(x: Tensor, experts: Tensor, weights: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    """`attnbook.tiled.moe.experts_forward`: x (t, d), experts and weights (t, k), the matrices -> y (t, d)."""
    return experts_forward(x, experts, weights, w_gate, w_up, w_down)


@moe_experts.register_fake
def _(x: Tensor, *others: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("attnbook::moe_experts_backward", mutates_args=())
def moe_experts_backward(
    grad_y: Tensor,
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    needs_experts: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, weights, w_gate, w_up and w_down; the last three empty where they are not needed."""
    inputs = (x, experts, weights, w_gate, w_up, w_down)
    d_x, d_weights, *d_experts = experts_backward(grad_y, *inputs, needs_experts=needs_experts)
    d_gate, d_up, d_down = (x.new_empty(0) if d is None else d for d in d_experts)
    return d_x, d_weights, d_gate, d_up, d_down


@moe_experts_backward.register_fake
def _(
    grad_y: Tensor, x: Tensor, experts: Tensor, weights: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *matrices, needs_experts = rest
    d_gate, d_up, d_down = (w.new_empty(w.shape if needs_experts else 0) for w in matrices)
    return x.new_empty(x.shape), torch.empty_like(weights), d_gate, d_up, d_down


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad
    grads = moe_experts_backward(grad_y, *ctx.saved_tensors, any(needs[3:]))
    d_x, d_weights, *d_experts = (d if n else None for d, n in zip(grads, (needs[0], *needs[2:]), strict=True))
    return d_x, None, d_weights, *d_experts


moe_experts.register_autograd(_differentiate, setup_context=_keep)
autocast.register("moe_experts", casts=False)
autocast.register("moe_experts_backward", casts=False)
