"""`moe`: the door to a mixture of experts. The router is traceable torch; its experts are one operator."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from attnbook.api import kernels, operators_moe
from attnbook.api.autocast import cast, is_on
from attnbook.api.traced import traced, transformed, vmapped
from attnbook.errors import BackendUnavailable
from attnbook.reference.moe import moe as reference_moe
from attnbook.shapes_moe import RoutingInfo
from attnbook.tiled.moe import moe as tiled_moe
from attnbook.tiled.moe import moe_through, route

IMPLEMENTATIONS = ("reference", "tiled", "triton")


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
    impl: str = "auto",
) -> tuple[Tensor, RoutingInfo]:
    """A mixture of SwiGLU experts: each token's sum over the `top_k` experts that the router chose for it.

    x (t, d) or (b, t, d), router_weight (e, d), w_gate and w_up (e, d, f), w_down (e, f, d) -> y like x, and
    `RoutingInfo`: weights and experts (t, k) or (b, t, k), loads (e,), aux_loss in Switch's form (uniform routing gives
    1; without a coefficient), and more. `router_weight` lies as in nn.Linear, the experts' weights transposed: x @ w.

    - `scoring`: `"softmax"` or `"sigmoid"`; `renormalize`: the chosen weights sum to 1.
    - `impl`: `"reference"` (to be read), `"tiled"` (tokens sorted by expert, one product an expert), `"triton"` (all
      experts in a few kernels for NVIDIA GPUs), or `"auto"`: the kernels on a GPU, if they run there, else the tiles.

    Inside `torch.autocast`, x and the experts' weights are cast to its dtype, as `attention` casts q, k and v; y has
    that dtype. The router's weights are not: it calculates in float32 also then.
    The other options, their sources, and what is raised: `attnbook.reference.moe`. Besides, ValueError for an unknown
    `impl` and BackendUnavailable for one that cannot run here. Under torch.compile the experts are one operator.
    """
    options: dict[str, Any] = {
        "top_k": top_k, "renormalize": renormalize, "scoring": scoring, "top_k_before_scoring": top_k_before_scoring,
        "selection_bias": selection_bias, "routed_scale": routed_scale, "capacity_factor": capacity_factor,
        "shared": shared,
    }  # fmt: skip
    if impl not in (*IMPLEMENTATIONS, "auto"):
        names = ", ".join(repr(name) for name in (*IMPLEMENTATIONS, "auto"))
        raise ValueError(f"impl is {impl!r}: expected one of {names}")
    x, (w_gate, w_up, w_down), options["shared"] = _cast(x, (w_gate, w_up, w_down), shared)
    weights = (x, router_weight, w_gate, w_up, w_down)
    if isinstance(x, Tensor):
        impl = _taken(x, impl)
        if impl == "reference" and x.is_meta:
            raise BackendUnavailable("reference looks at values, and there are none on the meta device")
    if impl == "reference":
        return reference_moe(*weights, **options)
    if isinstance(x, Tensor) and (traced(x) or impl == "triton"):
        # A compiler looks into no kernel, so what it traces has the router of plain torch, with the same contract.
        router = route if traced(x) else kernels.route
        return moe_through(lambda *given: operators_moe.moe_experts(*given, impl), *weights, **options, choose=router)
    return tiled_moe(*weights, **options)


def _cast(x: Any, matrices: tuple[Any, ...], shared: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """Under autocast, x and all matrices of experts in its dtype; whatever is no tensor comes back as it is."""
    if not isinstance(x, Tensor) or not is_on(x):
        return x, matrices, shared
    if isinstance(shared, tuple | list):
        shared = tuple(cast(x, x, w)[2] for w in shared)
    return cast(x, x, x)[0], tuple(cast(x, x, w)[2] for w in matrices), shared


def _taken(x: Tensor, impl: str) -> str:
    """What runs; "auto" where only the operator will know, or on the CPU, where that means the tiles."""
    if impl == "triton" or (impl == "auto" and x.is_cuda and not traced(x)):
        missing = kernels.unavailable_experts(x)
        if missing is None:
            return "triton"
        if impl == "triton":
            raise BackendUnavailable(missing)
    return _inside_transforms(x, impl)


def _inside_transforms(x: Tensor, impl: str) -> str:
    """What runs inside a transform of torch.func: the reference, whose gradients are torch's own, or nothing."""
    if torch.compiler.is_compiling() or not transformed():
        return impl
    if vmapped(x):
        raise BackendUnavailable(f"{impl} looks at which expert has which token, which torch.vmap does not allow")
    if impl == "tiled":
        raise BackendUnavailable(
            "tiled has a backward of its own, which transforms of torch.func and forward mode may not reach"
        )
    return "reference"
