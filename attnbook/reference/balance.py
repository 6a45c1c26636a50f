"""Keeping experts busy: a loss that pushes the router, or a bias that only the selection sees.

Left alone, a router sends most tokens to the few experts that were good first. Switch adds a loss, least when loads are
equal; its gradient also disturbs what the router learns. DeepSeek-V3 instead moves a bias by a fixed step after each
batch: it changes which experts are chosen and never a weight, so no gradient is disturbed.
Fedus et al. 2022, equation 4; Zoph et al. 2022, equation 5; Wang et al. 2024 (auxiliary-loss-free balancing).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.errors import DTypeError, ShapeError


def switch_loss(log_score: Tensor, experts: Tensor) -> Tensor:
    """Switch's loss, e · Σ_i f_i P_i: f_i is expert i's share of the t · k assignments, P_i its mean score.

    log_score (t, e) logarithms of scores, here normalised to sum to 1; experts (t, k) -> (). 1 when routing is uniform,
    for any k (with f_i counted per token it would be k); e / k when k experts get everything. Only P has a gradient.
    0 without tokens.
    """
    t, n_experts = log_score.shape
    loads = torch.bincount(experts.flatten(), minlength=n_experts).to(log_score.dtype)
    share = loads / max(experts.numel(), 1)  # f (e,)
    mean_score = torch.softmax(log_score, -1).sum(0) / max(t, 1)  # P (e,)
    return n_experts * (share * mean_score).sum()


def router_z_loss(logits: Tensor) -> Tensor:
    """The mean over tokens of logsumexp(logits)²; logits (t, e) -> (). 0 without tokens."""
    return torch.logsumexp(logits, -1).square().sum() / max(logits.shape[0], 1)


def update_selection_bias(bias: Tensor, loads: Tensor, *, rate: float = 0.001) -> Tensor:
    """The bias for the next batch: `rate` more for each expert below the mean load, `rate` less for each above it.

    bias (e,) floats, loads (e,) counts of one batch, as in `RoutingInfo.loads`, summed over devices where there are
    several -> a new tensor (e,). An expert at the mean keeps its bias. Raises ShapeError where the two differ,
    DTypeError for a bias of integers, ValueError for a rate below 0, TypeError for anything but tensors. DeepSeek-V3
    used a rate of 0.001.
    """
    for name, x in (("bias", bias), ("loads", loads)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}: expected a torch tensor")
    if bias.ndim != 1 or loads.shape != bias.shape:
        raise ShapeError(f"loads has shape {tuple(loads.shape)} and bias {tuple(bias.shape)}: expected (e,) for both")
    if not bias.is_floating_point():
        raise DTypeError(f"bias has dtype {bias.dtype}: expected a floating-point dtype")
    if isinstance(rate, str) or not rate >= 0:
        raise ValueError(f"rate is {rate!r}: expected 0 or more")
    counts = loads.to(torch.float64)
    return bias + rate * torch.sign(counts.mean() - counts).to(bias.dtype)
