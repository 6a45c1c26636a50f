"""What the experts do with their tokens: assignments sorted by expert once, then one product an expert and matrix.

    experts (t, k)        sorted         rows of x that each expert multiplies
    [[2, 0],              0: 0 1         expert 0: x[[0, 1]]
     [0, 2],              1: –           expert 1 gets none: no product, gradient exactly 0
     [2, 3]]              2: 0 1 2       expert 2: x[[0, 1, 2]]
                          3: 2           expert 3: x[[2]]

No token meets an expert it did not choose, and only one expert's rows are held at a time. The backward pass calculates
gate and up again instead of keeping t · k · f numbers of each. How many tokens an expert gets is known only at run
time, so a compiler must see these functions as one opaque operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

NOBODY = -1
"""In `experts`: this assignment was dropped, and gives 0."""


def experts_forward(
    x: Tensor, experts: Tensor, weights: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor
) -> Tensor:
    """Σ over the k slots of weight · (silu(x w_gate) · x w_up) w_down of the slot's expert; no autograd.

    x (t, d), experts (t, k) int64 with −1 for a dropped assignment, weights (t, k) float32 (float64 for float64 x),
    w_gate and w_up (e, d, f), w_down (e, f, d) -> y (t, d) in x's dtype, added up in the dtype of weights. A token
    chooses an expert at most once. Nothing is checked here.
    """
    y = torch.zeros(x.shape, dtype=weights.dtype, device=x.device)
    for e, row, slot in _groups(experts, w_gate.shape[0]):
        rows = _multiplied(x[row])
        hidden = F.silu(rows @ _multiplied(w_gate[e])).mul_(rows @ _multiplied(w_up[e]))  # (rows, f)
        out = hidden @ _multiplied(w_down[e])
        y.index_add_(0, row, out.to(y.dtype) * weights[row, slot, None])
    return y.to(x.dtype)


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
    """The gradients of `experts_forward` from that of y: of x, weights, w_gate, w_up and w_down.

    `needs_experts=False` leaves the last three out: None. An expert without tokens gets exact zeros, and so does the
    weight of a dropped assignment.
    """
    d_x = torch.zeros(x.shape, dtype=weights.dtype, device=x.device)
    d_weights = torch.zeros_like(weights)
    d_gate, d_up, d_down = (torch.zeros(w.shape, dtype=w.dtype, device=w.device) if needs_experts else None
                            for w in (w_gate, w_up, w_down))  # fmt: skip
    for e, row, slot in _groups(experts, w_gate.shape[0]):
        w_g, w_u, w_d = (_multiplied(w[e]) for w in (w_gate, w_up, w_down))
        rows, d_out, weight = _multiplied(x[row]), _multiplied(grad_y[row]), weights[row, slot, None]
        gate, up = rows @ w_g, rows @ w_u  # (rows, f) again
        sigma = torch.sigmoid(gate)
        silu = gate * sigma
        hidden = silu * up

        d_hidden = d_out @ w_d.mT  # for a weight of 1
        d_weights[row, slot] = (d_hidden * hidden).sum(-1, dtype=weights.dtype)
        d_hidden = (d_hidden * weight).to(d_hidden.dtype)
        d_g = d_hidden * up * (sigma + silu * (1 - sigma))  # silu'(z) = σ(z) + z σ(z) (1 − σ(z))
        d_u = d_hidden * silu
        d_x.index_add_(0, row, (d_g @ w_g.mT + d_u @ w_u.mT).to(d_x.dtype))
        if d_gate is not None and d_up is not None and d_down is not None:
            d_gate[e], d_up[e] = rows.mT @ d_g, rows.mT @ d_u
            d_down[e] = hidden.mT @ (d_out * weight).to(d_out.dtype)
    return d_x.to(x.dtype), d_weights, d_gate, d_up, d_down


class Experts(torch.autograd.Function):
    """`experts_forward` with its gradients, and theirs: the backward pass is plain torch."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, experts: Tensor, weights: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor
    ) -> Tensor:
        """Keeps the inputs only."""
        ctx.save_for_backward(x, experts, weights, w_gate, w_up, w_down)
        with torch.autocast(x.device.type, enabled=False):
            return experts_forward(x, experts, weights, w_gate, w_up, w_down)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        """By recomputation; the experts' gradients only where one of them is asked for."""
        with torch.autocast(grad_y.device.type, enabled=False):
            d_x, d_weights, *d_experts = experts_backward(
                grad_y, *ctx.saved_tensors, needs_experts=any(ctx.needs_input_grad[3:])
            )
        return d_x, None, d_weights, *d_experts


def _groups(experts: Tensor, n_experts: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each expert that has tokens: its number, its tokens (rows of x) in order, the slots they chose it with."""
    flat = experts.flatten()
    order = torch.argsort(flat, stable=True)  # by expert, then by token
    dropped, *sizes = torch.bincount(flat - NOBODY, minlength=n_experts + 1).tolist()
    row, slot = order[dropped:] // experts.shape[1], order[dropped:] % experts.shape[1]
    for e, (rows, slots) in enumerate(zip(torch.split(row, sizes), torch.split(slot, sizes), strict=True)):
        if len(rows):
            yield e, rows, slots


def _multiplied(x: Tensor) -> Tensor:
    """In the dtype to multiply in: a CPU multiplies float16 some 70 times slower than float32."""
    return x.float() if x.dtype == torch.float16 and x.device.type == "cpu" else x
