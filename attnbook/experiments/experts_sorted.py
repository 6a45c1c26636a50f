"""Every expert for every token, or tokens sorted by expert: the same numbers, how many operations?

Counted by torch's own counter. Then what only shows in an expert that nobody chose: its gradient, and what becomes of
a NaN in its weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attnbook.api.moe import moe
from attnbook.experiments._experts import experts
from attnbook.measure import experiment, measure
from attnbook.reference.moe import swiglu


@experiment
def run(t: int = 64, d: int = 16, n_experts: int = 16, f: int = 24, top_k: int = 2, seed: int = 0) -> dict[str, Any]:
    """Random tokens in float64. Data: `loads` (e,)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(t, d, generator=generator, dtype=torch.float64)
    router = torch.randn(n_experts, d, generator=generator, dtype=x.dtype) * d**-0.5
    weights = experts(generator, n_experts, d, f)
    y, info = moe(x, router, *weights, top_k=top_k, impl="reference")
    fast, _ = moe(x, router, *weights, top_k=top_k, impl="tiled")
    measure("experts.sorted_error", (fast - y).abs().max())
    shares = torch.zeros(t, n_experts, dtype=x.dtype).scatter(1, info.experts, info.weights)  # 0 where not chosen
    measure("experts.all_error", (everyone(x, shares, *weights) - y).abs().max())
    measure("experts.rows_sorted", info.loads.sum())
    _measure_operations(x, router, shares, weights, top_k)
    _measure_unused(x, router, weights, top_k)
    shared = experts(generator, 1, d, f)
    with_shared, _ = moe(x, router, *weights, top_k=top_k, shared=shared, impl="reference")
    alone = swiglu(x, *(w[0] for w in shared))
    measure("experts.shared_error", (with_shared - y - alone).abs().max())
    return {"loads": info.loads}


def everyone(x: Tensor, shares: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    """All experts for all tokens, weighted afterwards: x (t, d), shares (t, e) -> (t, d)."""
    outputs = torch.stack([swiglu(x, *one) for one in zip(w_gate, w_up, w_down, strict=True)], 1)  # (t, e, d)
    return (shares[..., None] * outputs).sum(1)


def _measure_operations(x: Tensor, router: Tensor, shares: Tensor, weights: Any, top_k: int) -> None:
    with FlopCounterMode(display=False) as all_of_them:
        everyone(x, shares, *weights)
    with FlopCounterMode(display=False) as whole:
        moe(x, router, *weights, top_k=top_k, impl="tiled")
    t, (e, d, f) = len(x), weights[0].shape
    choosing = 2 * t * d * e
    measure("experts.operations_all", all_of_them.get_total_flops())
    measure("experts.operations_sorted", whole.get_total_flops() - choosing)
    measure("experts.operations_router", choosing)
    measure("experts.operations_as_formula", whole.get_total_flops() == 6 * t * top_k * d * f + choosing)
    ratio = all_of_them.get_total_flops() / (whole.get_total_flops() - choosing)
    measure("experts.operations_ratio", ratio, unit="ratio")


def _measure_unused(x: Tensor, router: Tensor, weights: tuple[Tensor, Tensor, Tensor], top_k: int) -> None:
    """Expert 0 is made unattractive to every token: 50 less on its logit."""
    x = torch.cat([torch.ones_like(x[:, :1]), x[:, 1:]], 1)
    router = router.clone()
    router[0, 0] -= 50
    leaves = [w.clone().requires_grad_() for w in weights]
    y, info = moe(x, router, *leaves, top_k=top_k)
    gradients = torch.autograd.grad(y.square().sum(), leaves)
    measure("experts.unused_load", info.loads[0])
    measure("experts.unused_output_finite", bool(y.isfinite().all()))
    measure("experts.unused_gradient", max(float(g[0].abs().max()) for g in gradients))
    measure("experts.used_gradients_finite", all(bool(g.isfinite().all()) for g in gradients))
    spoilt = tuple(torch.cat([torch.full_like(w[:1], torch.nan), w[1:]]) for w in weights)
    shares = torch.zeros(len(x), len(router), dtype=x.dtype).scatter(1, info.experts, info.weights)
    measure("experts.nan_stays_away", bool(torch.equal(moe(x, router, *spoilt, top_k=top_k)[0], y)))
    measure("experts.nan_everywhere", bool(everyone(x, shares, *spoilt).isnan().all()))
