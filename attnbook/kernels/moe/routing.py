"""The router: kernels where plain torch takes many passes, plain torch where it is one.

Two things profit from a kernel, and have one: the k largest scores (`choose`: one launch instead of 2 k), and counting
and queueing assignments (`sort`, without atomic operations). Logits, scores and weights are a matrix product and a few
functions of small matrices, (t, e) and (t, k); torch does them well, and differentiates them. So does this function: it
has gradients to x and router_weight, though it asks for none.
"""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor
from torch.nn import functional as F

from attnbook.kernels.moe import choose, sort
from attnbook.shapes_moe import RoutingInfo


def route(
    x: Tensor,
    router_weight: Tensor,
    *,
    top_k: int,
    renormalize: bool,
    scoring: str,
    top_k_before_scoring: bool,
    selection_bias: Tensor | None,
    routed_scale: float,
    capacity_factor: float | None,
) -> RoutingInfo:
    """See `attnbook.kernels.moe.route`."""
    logits = x.float() @ router_weight.float().mT  # (t, e), in float32 whatever x is
    log_score = F.log_softmax(logits, -1) if scoring == "softmax" else F.logsigmoid(logits)
    wanted = logits
    if selection_bias is not None:
        wanted = (logits if top_k_before_scoring else log_score.exp()) + selection_bias.float()
    experts = choose.largest(wanted.detach(), top_k)

    before = top_k_before_scoring and scoring == "softmax"
    chosen = (logits if before else log_score).gather(1, experts)
    # A softmax of log s is s / Σ s without 0 / 0; one of logits is the softmax over the chosen.
    weights = (torch.softmax(chosen, -1) if renormalize or before else chosen.exp()) * routed_scale

    t, n_experts = logits.shape
    counts = sort.count(experts, n_experts)  # (tiles, e)
    loads = counts.sum(0, dtype=torch.int64)
    dropped = torch.zeros_like(experts, dtype=torch.bool)
    if capacity_factor is not None:
        where = sort.by_expert(experts, n_experts, counts)
        in_queue = where.place - where.row_bounds[experts]  # 0 for the first token that chose this expert
        dropped = in_queue >= room(capacity_factor, t * top_k, n_experts)

    n = max(t, 1)
    mean_score = (log_score.exp() if scoring == "softmax" else torch.softmax(log_score, -1)).sum(0) / n
    share = loads.float() / (n * top_k)
    return RoutingInfo(
        weights=weights.masked_fill(dropped, 0.0),
        experts=experts,
        loads=loads,
        aux_loss=n_experts * (share * mean_score).sum(),
        dropped=dropped,
        z_loss=torch.logsumexp(logits, -1).square().sum() / n,
    )


def room(capacity_factor: float, n_assignments: int, n_experts: int) -> int:
    """⌈factor · assignments / experts⌉, with 1.1 meaning 11/10."""
    exact = Fraction(capacity_factor).limit_denominator(10**6)
    return -(-n_assignments * exact.numerator // (n_experts * exact.denominator))
