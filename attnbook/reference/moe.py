"""A mixture of experts: every token passes through k of e small networks, the ones that its router chose.

The router is in `attnbook.reference.router`; here each expert takes its tokens, and their outputs are added up. Written
to be read: one expert after another. `attnbook.tiled.moe` is the fast one.

    x (t, d) ── router ──▶ experts (t, k), weights (t, k)
        │                        │
        └──▶ SwiGLU of the k chosen experts ──▶ Σ weight · output ──▶ y (t, d)

Shazeer et al. 2017; Fedus et al. 2022 (Switch); Jiang et al. 2024 (Mixtral); Dai et al. 2024 (DeepSeekMoE: shared
experts); DeepSeek-AI 2024 (V3). SwiGLU: Shazeer 2020.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnbook.errors import DTypeError
from attnbook.reference.router import route
from attnbook.shapes_moe import RoutingInfo, check_moe, check_routing


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
    and `RoutingInfo`. There is no residual: a token that all its experts dropped gets 0, and the caller adds x.

    - `scoring`: an expert's score is the softmax of all logits x · router_weightᵀ, or each logit's sigmoid.
    - The `top_k` experts of the largest scores are chosen; of equal ones, that with the lower number.
    - `renormalize`: the k weights are the scores divided by their sum; otherwise the scores. With top_k = 1 the
      renormalised weight is always 1, and no gradient reaches the router through y.
    - `top_k_before_scoring`: the softmax goes over the k chosen logits only. Their weights sum to 1 in any case, and
      are those that renormalising gives: softmax, top-k, renormalise = top-k, softmax. A sigmoid looks at one logit, so
      for it there is no before and after (but for what `selection_bias` is added to).
    - `selection_bias` (e,): added to the scores (to the logits, with `top_k_before_scoring`) where experts are chosen,
      never to a weight; no gradient. `update_selection_bias` says how it moves.
    - `routed_scale`: multiplies the weights at the end.
    - `capacity_factor`: each expert takes at most factor · t · k / e assignments, rounded up, counted over all tokens
      of the call, x[0] before x[1]; later tokens are dropped by it. Their weights for it become 0, the others stay. So
      what a token gets depends on the tokens before it, in other sequences too.
    - `shared`: w_gate (s, d, g), w_up (s, d, g), w_down (s, g, d) of s experts that every token passes, with weight 1.

    The router works in float32 (float64 for float64 x), and so do the experts here. A NaN stays in its token's row of
    y. An expert without tokens has weight gradients of exactly 0. t may be 0.

    Raises ShapeError, ValueError and DTypeError, naming axis, expectation and value, TypeError for anything but torch
    tensors. All of x's dtype and device; router_weight may also be float32 where x is shorter.
    """
    sizes = check_moe(x, router_weight, w_gate, w_up, w_down)
    check_routing(sizes, top_k=top_k, renormalize=renormalize, scoring=scoring,
                  top_k_before_scoring=top_k_before_scoring, selection_bias=selection_bias,
                  routed_scale=routed_scale, capacity_factor=capacity_factor, shared=shared)  # fmt: skip
    check_kinds(x, router_weight, selection_bias, {"w_gate": w_gate, "w_up": w_up, "w_down": w_down}
                | {f"shared[{i}]": w for i, w in enumerate(shared or ())})  # fmt: skip
    with torch.autocast(x.device.type, enabled=False):  # float32 means float32
        token = x.flatten(0, -2)  # (t, d), all sequences one after another
        info = route(token, router_weight, top_k=top_k, renormalize=renormalize, scoring=scoring,
                     top_k_before_scoring=top_k_before_scoring, selection_bias=selection_bias,
                     routed_scale=routed_scale, capacity_factor=capacity_factor)  # fmt: skip
        token = token.to(info.weights.dtype)
        y = torch.zeros_like(token)
        for e in range(sizes.e):
            row, slot = torch.where((info.experts == e) & ~info.dropped)  # a token chooses an expert at most once
            out = swiglu(token[row], w_gate[e], w_up[e], w_down[e])
            y = y.index_add(0, row, info.weights[row, slot, None] * out)
        if shared is not None:
            for gate, up, down in zip(*shared, strict=True):
                y = y + swiglu(token, gate, up, down)
    slots = (*x.shape[:-1], top_k)
    info = info._replace(**{name: getattr(info, name).reshape(slots) for name in ("weights", "experts", "dropped")})
    return y.to(x.dtype).reshape(x.shape), info


def swiglu(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    """One expert: (silu(x w_gate) · x w_up) w_down, in the dtype of x.

    x (t, d), w_gate and w_up (d, f), w_down (f, d) -> (t, d). silu(z) = z · sigmoid(z). Shazeer 2020.
    """
    gate, up, down = (w.to(x.dtype) for w in (w_gate, w_up, w_down))
    return (F.silu(x @ gate) * (x @ up)) @ down


def check_kinds(x: Tensor, router_weight: Tensor, selection_bias: Tensor | None, experts: dict[str, Tensor]) -> None:
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
