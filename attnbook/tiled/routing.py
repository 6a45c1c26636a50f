"""The router again, as plain torch that a compiler can trace: no number of it decides what Python does next.

The same contract as the reference's, another way: the k largest by k passes of `argmax` instead of a sort of all e
scores, loads by adding up ones, places in an expert's queue by sorting the t · k assignments.
"""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor
from torch.nn import functional as F

from attnbook.shapes_moe import RoutingInfo


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
    """Send each token to `top_k` experts; x (t, d), router_weight (e, d) -> RoutingInfo. Options as in `moe`."""
    working = torch.float64 if x.dtype == torch.float64 else torch.float32
    logits = x.to(working) @ router_weight.to(working).mT  # (t, e)
    log_score = F.log_softmax(logits, -1) if scoring == "softmax" else F.logsigmoid(logits)
    wanted = logits
    if selection_bias is not None:
        wanted = (logits if top_k_before_scoring else log_score.exp()) + selection_bias.to(working)
    experts = largest(wanted.detach(), top_k)

    before = top_k_before_scoring and scoring == "softmax"
    chosen = (logits if before else log_score).gather(1, experts)
    # A softmax of log s is s / Σ s without 0 / 0; one of logits is the softmax over the chosen.
    weights = (torch.softmax(chosen, -1) if renormalize or before else chosen.exp()) * routed_scale

    t, n_experts = logits.shape
    loads = torch.zeros(n_experts, dtype=torch.int64, device=x.device)
    loads = loads.scatter_add(0, experts.flatten(), torch.ones_like(experts).flatten())
    dropped = torch.zeros_like(experts, dtype=torch.bool)
    if capacity_factor is not None:
        exact = Fraction(capacity_factor).limit_denominator(10**6)  # 1.1 means 11/10
        per = n_experts * exact.denominator
        limit = (t * top_k * exact.numerator + per - 1) // per  # rounded up
        dropped = places(experts, loads) >= limit

    n = max(t, 1)
    mean_score = (log_score.exp() if scoring == "softmax" else torch.softmax(log_score, -1)).sum(0) / n
    share = loads.to(working) / (n * top_k)
    return RoutingInfo(
        weights=weights.masked_fill(dropped, 0.0),
        experts=experts,
        loads=loads,
        aux_loss=n_experts * (share * mean_score).sum(),
        dropped=dropped,
        z_loss=torch.logsumexp(logits, -1).square().sum() / n,
    )


def largest(wanted: Tensor, top_k: int) -> Tensor:
    """The columns of the k largest of each row, largest first, of equal ones the lower first; (t, e) -> (t, k).

    `argmax` promises the first of equals, `topk` does not. −inf counts as the lowest finite number, so that what is
    taken already, marked −inf, is never taken twice.
    """
    left = wanted.clamp(min=torch.finfo(wanted.dtype).min)
    columns = []
    for _ in range(top_k):
        column = left.argmax(-1, keepdim=True)
        left = left.scatter(1, column, -torch.inf)
        columns.append(column)
    return torch.cat(columns, -1)


def places(experts: Tensor, loads: Tensor) -> Tensor:
    """Each assignment's place in its expert's queue, 0 first, in the order of tokens; experts (t, k) -> (t, k)."""
    flat = experts.flatten()
    order = torch.argsort(flat, stable=True)
    start = loads.cumsum(0) - loads  # where an expert's assignments begin in `order`
    place = torch.arange(flat.shape[0], device=flat.device) - start[flat[order]]
    # Back by a second sort: with a scatter into an empty tensor, inductor (torch 2.13) found no expert full.
    return place[torch.argsort(order)].view_as(experts)
