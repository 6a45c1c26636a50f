"""The kernels of a mixture of experts against float64: routing, what the experts do, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.bench import truth
from attnbook.bench.case import Disagree, Finding, Setting
from attnbook.bench.kernel_checks import DTYPES, Worst, kernels

TOP_K = 2


class Problem:
    """Tokens, a router and experts of odd sizes; the last expert gets no token. Standard normal up to 1/√width."""

    def __init__(
        self, dtype: torch.dtype, setting: Setting, t: int = 515, e: int = 7, d: int = 136, f: int = 72
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        t = setting.length(t) | 1

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        x, router = normal(t, d), normal(e, d) / d**0.5
        x[:, 0] = x[:, 0].abs()
        router[-1] = 0
        router[-1, 0] = -100
        parts = x, router, normal(e, d, f) / d**0.5, normal(e, d, f) / d**0.5, normal(e, f, d) / f**0.5
        self.x, self.router, *matrices = (part.to(setting.device, dtype) for part in parts)
        self.matrices: list[Tensor] = matrices
        self.grad = normal(t, d).to(setting.device, dtype)
        self.name = str(dtype).removeprefix("torch.")

    def routed(self) -> tuple[Tensor, Tensor]:
        """Experts (t, k) int64 and weights (t, k) float32, one assignment dropped."""
        score = torch.softmax(self.x.double() @ self.router.double().mT, -1)
        weights, experts = score.topk(TOP_K)
        experts, weights = experts.clone(), (weights / weights.sum(-1, keepdim=True)).float()
        experts[1, 1], weights[1, 1] = -1, 0.0
        return experts, weights


def route(setting: Setting) -> Finding:
    """The same experts as float64 chooses, in order, and their weights; loads that add up."""
    moe, worst = kernels("moe", setting), Worst()
    for dtype in DTYPES:
        made = Problem(dtype, setting)
        info = moe.route(made.x, made.router, top_k=TOP_K)
        score = torch.softmax(made.x.double() @ made.router.double().mT, -1)
        right, experts = score.topk(TOP_K + 1)
        # Where float32 cannot tell two scores apart, either order is right.
        clear = ((right[:, :-1] - right[:, 1:]) > 1e-5 * right[:, :1]).all(-1)
        if not torch.equal(info.experts[clear], experts[clear, :TOP_K].to(info.experts.dtype)):
            raise Disagree(f"{made.name}: other experts than in float64")
        if not torch.equal(info.loads, torch.bincount(info.experts.flatten(), minlength=len(made.router))):
            raise Disagree(f"{made.name}: the loads are not those of the experts")
        share = right[clear, :TOP_K] / right[clear, :TOP_K].sum(-1, keepdim=True)
        logits = made.x.float() @ made.router.float().mT
        plain = torch.softmax(logits.gather(1, experts[:, :TOP_K]), -1)[clear]
        worst.add(f"weights, {made.name}", info.weights[clear], share, plain)
    return worst.finding()


def forward(setting: Setting) -> Finding:
    """What experts give with many tokens, few, or none."""
    moe, worst = kernels("moe", setting), Worst()
    for dtype in DTYPES:
        made = Problem(dtype, setting)
        experts, weights = made.routed()
        inputs = (made.x, experts, weights, *made.matrices)
        right, plain = truth.experts(*(_double(x) for x in inputs)), truth.experts(*inputs)
        for name, bad in (("zeros", right * 0), ("half as large", right / 2), ("experts permuted", _permuted(inputs))):
            if truth.excess(bad.to(dtype), right, plain) <= 1:
                raise Disagree(f"the check itself would let {name} through")
        worst.add(f"y, {made.name}", moe.experts_forward(*inputs), right, plain)
    return worst.finding()


def backward(setting: Setting) -> Finding:
    """The gradients of x, weights and the three matrices; exactly 0 for the expert without tokens."""
    moe, worst = kernels("moe", setting), Worst()
    for dtype in DTYPES:
        made = Problem(dtype, setting)
        experts, weights = made.routed()
        inputs = (made.x, experts, weights, *made.matrices)
        got = moe.experts_backward(made.grad, *inputs, needs_experts=True)
        both = [truth.gradients(truth.experts, inputs, made.grad, kind) for kind in (torch.float64, dtype)]
        for name, ours, r, p in zip(("x", "weights", "w_gate", "w_up", "w_down"), got, *both, strict=True):
            r = torch.where(experts < 0, 0.0, r) if name == "weights" else r
            p = torch.where(experts < 0, 0.0, p) if name == "weights" else p
            worst.add(f"gradient of {name}, {made.name}", ours, r, p, dtype)
            if name.startswith("w_") and ours[-1].any():
                raise Disagree(f"gradient of {name}, {made.name}: not 0 for the expert without tokens")
    return worst.finding()


def _double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def _permuted(inputs: tuple[Any, ...]) -> Tensor:
    x, experts, *rest = inputs
    return truth.experts(*(_double(x) for x in (x, torch.where(experts > 0, experts - 1, experts), *rest)))
