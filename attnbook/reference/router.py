"""The router of a mixture of experts: which k of the e experts each token goes to, and with what weight.

One row of logits a token, one score an expert, the k largest are taken. What stands out: weights come from the
logarithm of the scores, so that scores too small for float32 still have a ratio, and equal scores always go to the
expert with the lower number. How the experts are used: `attnbook.reference.moe`. How they are kept busy:
`attnbook.reference.balance`.
Shazeer et al. 2017 (top-k gating); Fedus et al. 2022 (capacity); Jiang et al. 2024 (Mixtral: softmax over the chosen);
DeepSeek-AI 2024 (V3: sigmoid scores, bias for the selection).
"""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor
from torch.nn import functional as F

from attnbook.reference.balance import router_z_loss, switch_loss
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
    """Send each token to `top_k` experts; the options are those of `moe`, which checks them.

    x (t, d), router_weight (e, d) -> RoutingInfo. Calculated in float32, or float64 for float64 x, whatever the dtype
    of x: a router in bfloat16 confuses experts whose logits differ by less than one part in 256.
    """
    working = torch.float64 if x.dtype == torch.float64 else torch.float32
    logits = x.to(working) @ router_weight.to(working).mT  # (t, e)
    log_score = F.log_softmax(logits, -1) if scoring == "softmax" else F.logsigmoid(logits)

    # Scores rise with their logits. So without a bias the logits decide: two sigmoids of 1.0 are no tie.
    wanted = logits
    if selection_bias is not None:
        wanted = (logits if top_k_before_scoring else log_score.exp()) + selection_bias.to(working)
    experts = largest(wanted.detach(), top_k)  # (t, k)

    chosen = log_score.gather(1, experts)  # (t, k)
    if top_k_before_scoring and scoring == "softmax":
        chosen = F.log_softmax(logits.gather(1, experts), -1)
    # softmax(log s) = s / Σ s, also where every s is 1e-44 or less and s / Σ s would be 0 / 0.
    weights = torch.softmax(chosen, -1) if renormalize else chosen.exp()
    weights = weights * routed_scale

    n_experts = router_weight.shape[0]
    dropped = torch.zeros_like(experts, dtype=torch.bool)
    if capacity_factor is not None:
        dropped = over_capacity(experts, n_experts, capacity(experts.shape, n_experts, capacity_factor))
    return RoutingInfo(
        weights=weights.masked_fill(dropped, 0.0),
        experts=experts,
        loads=torch.bincount(experts.flatten(), minlength=n_experts),
        aux_loss=switch_loss(log_score, experts),
        dropped=dropped,
        z_loss=router_z_loss(logits),
    )


def largest(wanted: Tensor, top_k: int) -> Tensor:
    """The columns of the k largest numbers of each row, largest first; of equal ones the lower column first.

    wanted (t, e) -> int64 (t, k). (`torch.topk` promises no order among equals.) NaN counts as the largest.
    """
    return torch.sort(wanted, dim=-1, descending=True, stable=True).indices[:, :top_k]


def capacity(shape: torch.Size, n_experts: int, factor: float) -> int:
    """How many assignments one expert accepts: factor · t · k / e, rounded up, so that 1 is enough for equal loads.

    `shape` is that of the assignments, (t, k). The factor counts as the fraction that was meant: 1.1 is 11/10, not the
    next binary number.
    """
    t, k = shape
    exact = Fraction(factor).limit_denominator(10**6)
    return -(-t * k * exact.numerator // (n_experts * exact.denominator))


def over_capacity(experts: Tensor, n_experts: int, limit: int) -> Tensor:
    """Which assignments find their expert full: `limit` earlier tokens already chose it.

    experts (t, k) -> booleans (t, k). The order is that of the tokens; which of its choices a token's expert is does
    not matter:

        expert   token 0   token 1   token 2        limit 2: token 2 is dropped by expert a, not by b
          a         x         x         x
          b         x                   x
    """
    chose = torch.zeros(experts.shape[0], n_experts, dtype=torch.int64, device=experts.device)
    chose.scatter_(1, experts, 1)  # (t, e) 1 where the token chose the expert
    earlier = chose.cumsum(0) - chose
    return earlier.gather(1, experts) >= limit
