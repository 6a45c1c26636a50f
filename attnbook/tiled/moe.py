"""A mixture of experts that multiplies only what the router chose: `attnbook.reference.moe`, fast in plain torch.

The router is traceable torch (`attnbook.tiled.routing`); what follows, sorted products with gradients by recomputation,
is in `attnbook.tiled.experts`. Multiplied in x's own dtype (float16 on a CPU: float32), added up in float32.
The idea of sorting instead of one-hot products: Gale et al. 2023 (MegaBlocks).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor

from attnbook.errors import DTypeError
from attnbook.shapes_moe import RoutingInfo, check_moe, check_routing
from attnbook.tiled.experts import NOBODY, Experts, experts_backward, experts_forward
from attnbook.tiled.routing import route

__all__ = ["experts_backward", "experts_forward", "moe", "moe_through", "route"]

RunExperts = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(x, experts, weights, w_gate, w_up, w_down) -> y, differentiable; see `experts_forward`."""


def moe(
    x: Tensor,
    router_weight: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    *,
    top_k: int,
    renormalize: bool = True,
    scoring: Literal["softmax", "sigmoid"] = "softmax",
    top_k_before_scoring: bool = False,
    selection_bias: Tensor | None = None,
    routed_scale: float = 1.0,
    capacity_factor: float | None = None,
    shared: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, RoutingInfo]:
    """Each token's sum over its `top_k` experts of weight · (silu(x w_gate) · x w_up) w_down.

    x (t, d) or (b, t, d), router_weight (e, d), w_gate and w_up (e, d, f), w_down (e, f, d) -> y like x, in its dtype,
    and `RoutingInfo`. Options, conventions and errors are those of `attnbook.reference.moe`.
    """
    return moe_through(Experts.apply, x, router_weight, w_gate, w_up, w_down, top_k=top_k, renormalize=renormalize,
                       scoring=scoring, top_k_before_scoring=top_k_before_scoring, selection_bias=selection_bias,
                       routed_scale=routed_scale, capacity_factor=capacity_factor, shared=shared)  # fmt: skip


def moe_through(
    run: RunExperts,
    x: Tensor,
    router_weight: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    *,
    top_k: int,
    renormalize: bool,
    scoring: str,
    top_k_before_scoring: bool,
    selection_bias: Tensor | None,
    routed_scale: float,
    capacity_factor: float | None,
    shared: tuple[Tensor, Tensor, Tensor] | None,
    choose: Callable[..., RoutingInfo] = route,
) -> tuple[Tensor, RoutingInfo]:
    """`moe` with the experts run by `run`: the place for a custom operator, whose inside no compiler looks into.

    `choose` is the router, `route` or what takes and gives the same.
    """
    sizes = check_moe(x, router_weight, w_gate, w_up, w_down)
    check_routing(sizes, top_k=top_k, renormalize=renormalize, scoring=scoring,
                  top_k_before_scoring=top_k_before_scoring, selection_bias=selection_bias,
                  routed_scale=routed_scale, capacity_factor=capacity_factor, shared=shared)  # fmt: skip
    _check_kinds(x, router_weight, selection_bias, {"w_gate": w_gate, "w_up": w_up, "w_down": w_down}
                 | {f"shared[{i}]": w for i, w in enumerate(shared or ())})  # fmt: skip
    token = x.flatten(0, -2)
    # The router stays in float32; on the meta device there is no autocast to be off.
    with nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False):
        info = choose(token, router_weight, top_k=top_k, renormalize=renormalize, scoring=scoring,
                      top_k_before_scoring=top_k_before_scoring, selection_bias=selection_bias,
                      routed_scale=routed_scale, capacity_factor=capacity_factor)  # fmt: skip
    kept = info.experts if capacity_factor is None else info.experts.masked_fill(info.dropped, NOBODY)
    y = run(token, kept, info.weights, w_gate, w_up, w_down)
    if shared is not None:  # experts that every token chose, with weight 1
        everyone = torch.arange(shared[0].shape[0], device=x.device).expand(token.shape[0], -1)
        y = y + run(token, everyone, torch.ones_like(everyone, dtype=info.weights.dtype), *shared)
    slots = (*x.shape[:-1], top_k)
    info = info._replace(
        weights=info.weights.reshape(slots), experts=info.experts.reshape(slots), dropped=info.dropped.reshape(slots)
    )
    return y.reshape(x.shape), info


def _check_kinds(x: Tensor, router_weight: Tensor, selection_bias: Tensor | None, experts: dict[str, Tensor]) -> None:
    """Raises TypeError for anything but tensors, DTypeError for a dtype and ValueError for a device other than x's."""
    others = experts | {"router_weight": router_weight}
    if selection_bias is not None:
        others["selection_bias"] = selection_bias
    for name, w in {"x": x, **others}.items():
        if not isinstance(w, Tensor):
            raise TypeError(f"{name} is a {type(w).__name__}: expected a torch tensor")
        if w.is_nested or w.layout != torch.strided:
            kind = "nested" if w.is_nested else f"of layout {w.layout}"
            raise TypeError(f"{name} is {kind}: expected a dense tensor")
    if not x.is_floating_point():
        raise DTypeError(f"x has dtype {x.dtype}: expected a floating-point dtype")
    longer = torch.float64 if x.dtype == torch.float64 else torch.float32
    if router_weight.dtype not in (x.dtype, longer):
        allowed = str(x.dtype) if x.dtype == longer else f"{x.dtype} or {longer}"
        raise DTypeError(f"router_weight has dtype {router_weight.dtype} but x has {x.dtype}: expected {allowed}")
    if selection_bias is not None and not selection_bias.is_floating_point():
        raise DTypeError(f"selection_bias has dtype {selection_bias.dtype}: expected a floating-point dtype")
    for name, w in experts.items():
        if w.dtype != x.dtype:
            raise DTypeError(f"{name} has dtype {w.dtype} but x has {x.dtype}: they must be equal")
    for name, w in others.items():
        if w.device != x.device:
            raise ValueError(f"{name} is on device {w.device} but x on {x.device}: they must be equal")
