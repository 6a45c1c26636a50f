"""The axes of a mixture of experts, their checks, and what every implementation returns about its routing.

Two axes more than attention has, e (experts) and f (components inside an expert), and k of the e for each token:

    x             (t, d) or (b, t, d)         router_weight (e, d)
    w_gate, w_up  (e, d, f)                   w_down        (e, f, d)

As in `attnbook.shapes`, only `.shape` is read, of arrays and tensors alike.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attnbook.errors import ShapeError
from attnbook.shapes import Shaped, check_axes, check_equal, check_shaped, is_real


@dataclass(frozen=True)
class MoeSizes:
    """The lengths of all axes of one mixture of experts: d of a token, e experts, f inside an expert."""

    d: int
    e: int
    f: int


class RoutingInfo(NamedTuple):
    """Where a mixture of experts sent its tokens, from `moe` of every implementation.

    The leading axes are those of x without d: (t,), or (b, t). Floats are float32, or float64 for float64 input.

    - `weights` (…, t, k): what each chosen expert's output was multiplied by; 0 where dropped; most wanted first.
    - `experts` (…, t, k) int64: the chosen experts, dropped or not.
    - `loads` (e,) int64: how many assignments each expert was chosen for, before anything is dropped; the sum is t · k,
      over all tokens.
    - `aux_loss` (): e · Σ (share of the assignments) · (mean normalised score), 1 for uniform routing, 0 without
      tokens. Multiply it by a small coefficient and add it to your loss; `z_loss` likewise.
    - `dropped` (…, t, k) booleans: True where the expert was full, so that this assignment gave 0.
    - `z_loss` (): the mean of logsumexp(logits)², 0 without tokens: it keeps logits small (Zoph et al. 2022).
    """

    weights: Any
    experts: Any
    loads: Any
    aux_loss: Any
    dropped: Any
    z_loss: Any


def check_moe(x: Shaped, router_weight: Shaped, w_gate: Shaped, w_up: Shaped, w_down: Shaped) -> MoeSizes:
    """The sizes of `moe(x, …)`; raises ShapeError for the first axis that does not fit.

    x (t, d) or (b, t, d), router_weight (e, d), w_gate and w_up (e, d, f), w_down (e, f, d).
    """
    check_shaped("x", x)
    if len(x.shape) not in (2, 3):
        raise ShapeError(f"x has {len(x.shape)} axes {tuple(x.shape)}: expected 2, (t, d), or 3, (b, t, d)")
    check_axes("router_weight", router_weight, "e d")
    d, (e, of_router) = x.shape[-1], router_weight.shape
    check_equal("router_weight", of_router, "x", d, "{} components (axis d)")
    return MoeSizes(d, e, _check_experts(("w_gate", "w_up", "w_down"), (w_gate, w_up, w_down), e, d))


def check_routing(
    sizes: MoeSizes,
    *,
    top_k: int,
    renormalize: bool,
    scoring: str,
    top_k_before_scoring: bool,
    selection_bias: Shaped | None,
    routed_scale: float,
    capacity_factor: float | None,
    shared: Sequence[Shaped] | None,
) -> None:
    """Raises ValueError or ShapeError for the first option of `moe` that has no meaning for these sizes."""
    if isinstance(top_k, bool) or not isinstance(top_k, numbers.Integral):
        raise ValueError(f"top_k is {top_k!r}: expected a whole number of experts")
    if not 1 <= top_k <= sizes.e:
        raise ValueError(f"top_k is {top_k} but router_weight has {sizes.e} experts (axis e): expected 1 to {sizes.e}")
    if scoring not in ("softmax", "sigmoid"):
        raise ValueError(f"scoring is {scoring!r}: expected 'softmax' or 'sigmoid'")
    for name, flag in (("renormalize", renormalize), ("top_k_before_scoring", top_k_before_scoring)):
        if flag not in (True, False):
            raise ValueError(f"{name} is {flag!r}: expected True or False")
    if not is_real(routed_scale) or not math.isfinite(routed_scale):
        raise ValueError(f"routed_scale is {routed_scale!r}: expected a finite number")
    if capacity_factor is not None and not (
        is_real(capacity_factor) and math.isfinite(capacity_factor) and capacity_factor > 0
    ):
        raise ValueError(f"capacity_factor is {capacity_factor!r}: expected a finite number above 0, or None")
    if selection_bias is not None:
        check_axes("selection_bias", selection_bias, "e")
        check_equal("selection_bias", selection_bias.shape[0], "router_weight", sizes.e, "{} experts (axis e)")
    if shared is not None:
        if len(shared) != 3:
            raise ValueError(f"shared holds {len(shared)} arrays: expected 3, (w_gate, w_up, w_down)")
        names = ("shared[0] (w_gate)", "shared[1] (w_up)", "shared[2] (w_down)")
        check_axes(names[0], shared[0], "e d f")
        _check_experts(names, shared, shared[0].shape[0], sizes.d)


def _check_experts(names: Sequence[str], weights: Sequence[Shaped], e: int, d: int) -> int:
    """The f of experts (e, d, f), (e, d, f), (e, f, d)."""
    for name, w, axes in zip(names, weights, ("e d f", "e d f", "e f d"), strict=True):
        check_axes(name, w, axes)
        check_equal(name, w.shape[0], "router_weight" if names[0] == "w_gate" else names[0], e, "{} experts (axis e)")
        check_equal(name, w.shape[axes.split().index("d")], "x", d, "{} components (axis d)")
    f = weights[0].shape[2]
    for name, w, axis in ((names[1], weights[1], 2), (names[2], weights[2], 1)):
        check_equal(name, w.shape[axis], names[0], f, "{} components (axis f)")
    return f
