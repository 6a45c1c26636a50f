"""A mixture of experts: the router, and the products of all experts in a few launches, with their gradients.

    route             x (t, d), router_weight (e, d) ─▶ RoutingInfo: experts and weights (t, k), loads (e,), …
    experts_forward   x, experts, weights, the experts' matrices ─▶ y (t, d)
    experts_backward  the same and y's gradient ─▶ the gradients of x, weights and the matrices

`sort` puts the assignments in the order of experts (stable, no atomic operation), `forward` and `backward` hold the
kernels of the products: one launch for all experts, however many rows each has. `experts` and `routing` launch them,
`configs` says with which tiles. The idea of sorting, and of products with ragged groups: Gale et al. 2023 (MegaBlocks).

Everything is calculated the same way on every run with the same input. The kernels ran in Triton's interpreter and were
compiled for three GPUs; nothing here has been timed on one.
"""

from __future__ import annotations

from torch import Tensor

from attnbook.kernels import targets
from attnbook.kernels.available import require
from attnbook.shapes_moe import RoutingInfo

__all__ = ["NOBODY", "experts_backward", "experts_forward", "route"]

NOBODY = -1
"""In `experts`: this assignment was dropped, and gives 0. Any other number that is no expert's counts as it."""


def route(
    x: Tensor,
    router_weight: Tensor,
    *,
    top_k: int,
    renormalize: bool = True,
    scoring: str = "softmax",
    top_k_before_scoring: bool = False,
    selection_bias: Tensor | None = None,
    routed_scale: float = 1.0,
    capacity_factor: float | None = None,
) -> RoutingInfo:
    """Send each token to `top_k` experts; x (t, d), router_weight (e, d) -> RoutingInfo. Options as in `attnbook.moe`.

    The k largest scores and the queues are kernels, the rest is plain torch in float32, differentiable in x and
    router_weight. Options are not checked here. Raises BackendUnavailable where the kernels cannot run.
    """
    require(x)
    from attnbook.kernels.moe import routing

    with targets.on_device_of(x):
        return routing.route(x, router_weight, top_k=top_k, renormalize=renormalize, scoring=scoring,
                             top_k_before_scoring=top_k_before_scoring, selection_bias=selection_bias,
                             routed_scale=routed_scale, capacity_factor=capacity_factor)  # fmt: skip


def experts_forward(
    x: Tensor, experts: Tensor, weights: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor
) -> Tensor:
    """Σ over the k slots of weight · (silu(x w_gate) · x w_up) w_down of the slot's expert; no autograd.

    x (t, d), experts (t, k) whole numbers with −1 for a dropped assignment, weights (t, k) float32, w_gate and w_up
    (e, d, f), w_down (e, f, d) -> y (t, d) in x's dtype. Any t, d, f and strides; t · k below 2³¹. Products and sums
    are added up in float32; silu(…) · … and each expert's answer are rounded to x's dtype in between.

    Raises BackendUnavailable where the kernels cannot run, ShapeError, DTypeError and ValueError for what does not fit.
    """
    require(x)
    from attnbook.kernels.moe import experts as kernels

    with targets.on_device_of(x):
        return kernels.experts_forward(x, experts, weights, w_gate, w_up, w_down)


def experts_backward(
    grad_y: Tensor,
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    *,
    needs_experts: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of `experts_forward` from that of y (t, d): those of x, weights and the matrices, in their shapes.

    `needs_experts=False` leaves the last three out: None. An expert without tokens gets exact zeros, and so does the
    weight of a dropped assignment. Nothing is kept from the forward pass: gate and up are calculated again.
    Raises what `experts_forward` raises.
    """
    require(x)
    from attnbook.kernels.moe import experts as kernels

    with targets.on_device_of(x):
        return kernels.experts_backward(grad_y, x, experts, weights, w_gate, w_up, w_down, needs_experts=needs_experts)
