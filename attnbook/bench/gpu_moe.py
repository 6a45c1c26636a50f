"""A mixture of experts on a GPU: the three grouped products with everything around them, against torch's.

Operations are those of the products: 2 · rows · d · f for each of the three matrices, rows being t · k assignments.
Sorting, gathering and the weighted sum belong to the time and not to the operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.bench import rates, rivals, truth
from attnbook.bench.case import Finding, Setting
from attnbook.bench.ceilings import multiplying
from attnbook.bench.kernel_checks import kernels
from attnbook.bench.rates import inputs


@dataclass(frozen=True)
class Layer:
    """t tokens of width d, k of e experts of width f for each."""

    t: int
    d: int
    e: int
    k: int
    f: int

    def sized(self, setting: Setting) -> Layer:
        """Smaller where it must be quick."""
        return Layer(setting.length(self.t) // 8, 128, min(self.e, 8), min(self.k, 2), 64) if setting.quick else self

    @property
    def operations(self) -> int:
        """FLOP of one forward call; backward takes twice as many, and again the two products that it recalculates."""
        return 3 * 2 * self.t * self.k * self.d * self.f

    @property
    def operations_backward(self) -> int:
        """FLOP of the gradients alone: for each product one of its input and one of its matrix."""
        return 2 * self.operations

    def tensors(self, setting: Setting) -> list[Tensor]:
        """x, experts, weights, the three matrices and a gradient of y; routing is random and nearly even."""
        x, gate, up, down, grad = inputs(
            setting, (self.t, self.d), *2 * [(self.e, self.d, self.f)], (self.e, self.f, self.d), (self.t, self.d),
            dtype=torch.bfloat16,
        )  # fmt: skip
        gate, up, down = (w.div_(w.shape[1] ** 0.5) for w in (gate, up, down))
        score = torch.rand(self.t, self.e, generator=torch.Generator().manual_seed(0))
        weights, experts = torch.softmax(score, -1).topk(self.k)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.device)
        return [x, experts.to(x.device), weights, gate, up, down, grad]


def forward(layer: Layer) -> Callable[[Setting], Finding]:
    """Percent of a square product's TFLOP/s."""

    def run(setting: Setting) -> Finding:
        moe, sized = kernels("moe", setting), layer.sized(setting)
        *given, _ = sized.tensors(setting)

        def ours() -> Tensor:
            y: Tensor = moe.experts_forward(*given)
            return y

        others, theirs = rivals.Rivals(), rivals.GroupedExperts(*given[3:])
        with torch.no_grad():
            others.add("grouped_mm", lambda: theirs(*given[:3]))
            rates.keep_right(ours(), others, _judge(given))
            return rates.measured(
                ours, others, setting, amount=sized.operations, unit="TFLOP/s", as_share=True,
                ceiling=("mm", multiplying(setting, "bfloat16")),
            )  # fmt: skip

    return run


def backward(layer: Layer) -> Callable[[Setting], Finding]:
    """TFLOP/s of all gradients; what is recalculated is not counted."""

    def run(setting: Setting) -> Finding:
        moe, sized = kernels("moe", setting), layer.sized(setting)
        *given, grad = sized.tensors(setting)

        def ours() -> tuple[Tensor, ...]:
            d_x, _, *d_matrices = moe.experts_backward(grad, *given, needs_experts=True)
            return (d_x, *d_matrices)

        x, experts, weights, *matrices = given
        leaves = [w.detach().requires_grad_() for w in (x, *matrices)]
        theirs = rivals.GroupedExperts(*leaves[1:])
        kept: list[Tensor] = []

        def torchs() -> tuple[Tensor, ...]:
            if not kept:
                kept.append(theirs(leaves[0], experts, weights))
            return torch.autograd.grad(kept[0], leaves, grad, retain_graph=True)

        others = rivals.Rivals()
        others.add("grouped_mm", torchs)
        rates.keep_right(ours(), others, _gradients_judge(given, grad))
        return rates.measured(
            ours, others, setting, amount=sized.operations_backward, unit="TFLOP/s",
            ceiling=("mm", multiplying(setting, "bfloat16")),
        )  # fmt: skip

    return run


TOKENS = 128
"""So many of the last tokens are calculated in float64."""


def _judge(given: list[Tensor]) -> Callable[[Tensor], float]:
    x, experts, weights, *matrices = given
    last = x[-TOKENS:], experts[-TOKENS:], weights[-TOKENS:]
    right, plain = _experts(*last, matrices, torch.float64), _experts(*last, matrices, x.dtype)
    return lambda y: truth.excess(y[-TOKENS:], right, plain)


def _experts(x: Tensor, experts: Tensor, weights: Tensor, matrices: list[Tensor], dtype: torch.dtype) -> Tensor:
    """`truth.experts`, one expert's matrices in `dtype` at a time: all of them in float64 may not fit."""
    y = torch.zeros(x.shape, dtype=dtype, device=x.device)
    for e in range(len(matrices[0])):
        one = (w[e : e + 1].to(dtype) for w in matrices)
        y += truth.experts(x.to(dtype), torch.where(experts == e, 0, -1), weights, *one)
    return y


def _gradients_judge(given: list[Tensor], grad: Tensor) -> Callable[[tuple[Tensor, ...]], float]:
    """By the last tokens' gradient, and the matrices of one expert in the middle."""
    x, experts, weights, *matrices = given
    e = len(matrices[0]) // 2
    d_x, d_expert = [], []
    for dtype in (torch.float64, x.dtype):
        last = x[-TOKENS:].to(dtype).requires_grad_()
        y = _experts(last, experts[-TOKENS:], weights[-TOKENS:], matrices, dtype)
        d_x.append(torch.autograd.grad(y, last, grad[-TOKENS:].to(dtype))[0])
        one = [w[e : e + 1].to(dtype).requires_grad_() for w in matrices]
        y = truth.experts(x.to(dtype), torch.where(experts == e, 0, -1), weights, *one)
        d_expert.append(torch.autograd.grad(y, one, grad.to(dtype)))

    def judge(got: tuple[Tensor, ...]) -> float:
        of_x = truth.excess(got[0][-TOKENS:], d_x[0], d_x[1])
        return max(of_x, *(truth.excess(g[e : e + 1], r, p) for g, r, p in zip(got[1:], *d_expert, strict=True)))

    return judge
