"""Attention on a GPU: forward, backward and packed sequences against every backend of torch, in the same rounds.

Operations are counted exactly (`attnbook.costs.attention_flops`): pairs that may see each other, and no others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnbook.bench import rates, rivals, truth
from attnbook.bench.case import Finding, Setting
from attnbook.bench.ceilings import multiplying
from attnbook.bench.kernel_checks import kernels
from attnbook.bench.rates import inputs
from attnbook.costs import attention_flops


@dataclass(frozen=True)
class Problem:
    """One layer's attention over itself: b sequences of t tokens."""

    b: int
    n_heads: int
    t: int
    d: int = 128
    n_kv_heads: int | None = None
    is_causal: bool = True
    window: int | None = None
    dtype: str = "bfloat16"
    flex: bool = False
    """Is FlexAttention compiled for it?"""

    def sized(self, setting: Setting) -> Problem:
        """Smaller where it must be quick."""
        if not setting.quick:
            return self
        window = None if self.window is None else setting.length(self.window)
        t = setting.length(self.t)
        return replace(self, b=1, n_heads=4, t=t, n_kv_heads=self.n_kv_heads and 2, window=window)

    def tensors(self, setting: Setting) -> list[Tensor]:
        """q, k, v and a gradient of out."""
        q, k = ((self.b, h, self.t, self.d) for h in (self.n_heads, self.n_kv_heads or self.n_heads))
        return inputs(setting, q, k, k, q, dtype=getattr(torch, self.dtype))

    @property
    def options(self) -> dict[str, Any]:
        """For the kernels: all of them."""
        return {"is_causal": self.is_causal, "window": self.window, "softcap": None, "scale": self.d**-0.5}

    def ways(self, q: Tensor, k: Tensor, v: Tensor) -> Mapping[str, Callable[..., Tensor]]:
        """Torch's."""
        return rivals.attention(q, k, v, is_causal=self.is_causal, window=self.window, with_flex=self.flex)

    def operations(self, *, backward: bool) -> int:
        """FLOP of one call."""
        counted = attention_flops(
            self.t, n_heads=self.n_heads, n_kv_heads=self.n_kv_heads, head_dim=self.d, b=self.b,
            is_causal=self.is_causal, window=self.window,
        )  # fmt: skip
        return counted.backward if backward else counted.forward


def forward(problem: Problem) -> Callable[[Setting], Finding]:
    """TFLOP/s of the forward kernel."""

    def run(setting: Setting) -> Finding:
        flash, sized = kernels("flash", setting), problem.sized(setting)
        q, k, v, _ = sized.tensors(setting)

        def ours() -> Tensor:
            out: Tensor = flash.attention_forward(q, k, v, None, None, None, **sized.options)[0]
            return out

        others = rivals.Rivals()
        with torch.no_grad():
            for name, way in sized.ways(q, k, v).items():
                others.add(name, lambda way=way: way(q, k, v))  # type: ignore[misc]
            rates.keep_right(ours(), others, rates.rows_judge(q, k, v, sized.options))
            return rates.measured(
                ours, others, setting, amount=sized.operations(backward=False), unit="TFLOP/s",
                ceiling=("mm", multiplying(setting, sized.dtype)),
            )  # fmt: skip

    return run


def backward(problem: Problem) -> Callable[[Setting], Finding]:
    """TFLOP/s of all the kernels of backward; torch's sides through autograd, without their forward."""

    def run(setting: Setting) -> Finding:
        flash, sized = kernels("flash", setting), problem.sized(setting)
        q, k, v, grad = sized.tensors(setting)
        out, lse = flash.attention_forward(q, k, v, None, None, None, **sized.options)
        no_extras = {"needs_mask": False, "needs_alibi": False, "needs_sinks": False}

        def ours() -> tuple[Tensor, ...]:
            got = flash.attention_backward(
                grad, None, q, k, v, out, lse, None, None, None, **sized.options, **no_extras
            )
            return tuple(got[:3])

        others, leaves = rivals.Rivals(), [x.detach().requires_grad_() for x in (q, k, v)]
        for name, way in sized.ways(q, k, v).items():
            _add_backward(others, name, way, leaves, grad)
        rates.keep_right(ours(), others, _gradients_judge(sized, q, k, v, grad))
        return rates.measured(
            ours, others, setting, amount=sized.operations(backward=True), unit="TFLOP/s",
            ceiling=("mm", multiplying(setting, sized.dtype)),
        )  # fmt: skip

    return run


def _add_backward(
    others: rivals.Rivals, name: str, way: Callable[..., Tensor], leaves: list[Tensor], grad: Tensor
) -> None:
    """One of torch's ways, forward once and its backward again and again."""
    kept: list[Tensor] = []

    def run() -> tuple[Tensor, ...]:
        if not kept:
            kept.append(way(*leaves))
        return torch.autograd.grad(kept[0], leaves, grad, retain_graph=True)

    others.add(name, run)


def _gradients_judge(problem: Problem, q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Callable[..., float]:
    """Judges (dq, dk, dv) by the last group of heads of the last sequence: the worst of the three."""
    heads = slice(-(problem.n_heads // (problem.n_kv_heads or problem.n_heads)), None)
    part = q[-1:, heads], k[-1:, -1:], v[-1:, -1:]

    def call(*x: Tensor) -> Tensor:
        return truth.dense(*x, **problem.options)[0]

    right, plain = (truth.gradients(call, part, grad[-1:, heads], kind) for kind in (torch.float64, q.dtype))

    def judge(got: tuple[Tensor, ...]) -> float:
        places = zip(got, (heads, slice(-1, None), slice(-1, None)), right, plain, strict=True)
        return max(truth.excess(x[-1:, place], r, p) for x, place, r, p in places)

    return judge


LENGTHS = (5_120, 3_072, 2_048, 1_536, 1_024, 1_024, 768, 512, 384, 256, 256, 128, 96, 64, 64, 32)
"""16 384 tokens in 16 documents, as real text has them: a few long ones, many short."""


def packed(setting: Setting) -> Finding:
    """16 documents of 32 to 5 120 tokens, causal, 16 heads, d 128: TFLOP/s of what they need, without filling."""
    flash = kernels("flash", setting)
    lengths = [max(n // 256, 1) if setting.quick else n for n in LENGTHS]
    ends = [0, *itertools.accumulate(lengths)]
    q, k, v = inputs(setting, *3 * [(ends[-1], 4 if setting.quick else 16, 128)], dtype=torch.bfloat16)
    cu = torch.tensor(ends, dtype=torch.int32, device=q.device)
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(q.device)
    options = {"is_causal": True, "window": None, "softcap": None, "scale": 128**-0.5}
    heads = [x.transpose(0, 1)[None] for x in (q, k, v)]  # (1, h, t, d)
    flex = rivals.flex(heads[0], heads[1], is_causal=True, document=document)

    def ours() -> Tensor:
        out: Tensor = flash.varlen_forward(q, k, v, cu, cu, None, None, None, **options)[0]
        return out

    first_q, first_k, first_v = (x[: lengths[0]].transpose(0, 1)[None] for x in (q, k, v))
    of_longest = rates.rows_judge(first_q, first_k, first_v, options)

    def judge(out: Tensor) -> float:
        return of_longest(out[: lengths[0]].transpose(0, 1)[None])

    others = rivals.Rivals()
    with torch.no_grad():
        others.add("flash, varlen", lambda: rivals.packed(q, k, v, cu, max(lengths)))
        others.add("flex", lambda: flex(*heads)[0].transpose(0, 1))
        rates.keep_right(ours(), others, judge)
        amount = sum(attention_flops(n, n_heads=q.shape[1], head_dim=128, is_causal=True).forward for n in lengths)
        ceiling = ("mm", multiplying(setting, "bfloat16"))
        return rates.measured(ours, others, setting, amount=amount, unit="TFLOP/s", ceiling=ceiling)
