"""The operator of the experts: how many tokens each gets is known only when it runs, so no compiler looks inside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.api import autocast, kernels
from attnbook.tiled.moe import experts_backward, experts_forward


@torch.library.custom_op("attnbook::moe_experts", mutates_args=())
def moe_experts(
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    impl: str = "auto",
) -> Tensor:
    """`attnbook.tiled.moe.experts_forward`: x (t, d), experts and weights (t, k), the matrices -> y (t, d).

    "auto" is the Triton kernels on a GPU, if they can, and else one product an expert in plain torch.
    """
    run = kernels.experts_forward if kernels.experts_taken(impl, x) else experts_forward
    return run(x, experts, weights, w_gate, w_up, w_down)


@moe_experts.register_fake
def _(x: Tensor, *others: Any) -> Tensor:
    kernels.require(others[5] if len(others) > 5 else "auto", x)
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
    impl: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, weights, w_gate, w_up and w_down; the last three empty where they are not needed."""
    inputs = (x, experts, weights, w_gate, w_up, w_down)
    run = kernels.experts_backward if kernels.experts_taken(impl, x) else experts_backward
    d_x, d_weights, *d_experts = run(grad_y, *inputs, needs_experts=needs_experts)
    d_gate, d_up, d_down = (x.new_empty(0) if d is None else d for d in d_experts)
    return d_x, d_weights, d_gate, d_up, d_down


@moe_experts_backward.register_fake
def _(
    grad_y: Tensor, x: Tensor, experts: Tensor, weights: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    matrices, needs_experts = rest[:3], rest[3]
    d_gate, d_up, d_down = (w.new_empty(w.shape if needs_experts else 0) for w in matrices)
    return x.new_empty(x.shape), torch.empty_like(weights), d_gate, d_up, d_down


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.impl = inputs[6]


def _differentiate(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad[:6]
    grads = moe_experts_backward(grad_y, *ctx.saved_tensors, any(needs[3:]), ctx.impl)
    d_x, d_weights, *d_experts = (d if n else None for d, n in zip(grads, (needs[0], *needs[2:]), strict=True))
    return d_x, None, d_weights, *d_experts, None


moe_experts.register_autograd(_differentiate, setup_context=_keep)
autocast.register("moe_experts", casts=False)
autocast.register("moe_experts_backward", casts=False)
