"""The cases of packed sequences and of experts: many small problems, against one large one that holds them all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.nn.functional import silu

from attnbook import api
from attnbook.bench.attention_cases import inputs
from attnbook.bench.case import Finding, Setting, Sides, compared

EQUAL = (1_024,) * 16
SKEWED = (5_120, 3_072, 2_048, 1_536, 1_024, 1_024, 768, 512, 384, 256, 256, 128, 96, 64, 64, 32)
"""16 384 tokens in 16 documents, as real text has them: a few long ones, many short."""


def packed(lengths: Sequence[int]) -> Callable[[Setting], Finding]:
    """Causal attention inside each document, 8 heads, d 64, against SDPA with the dense block-diagonal mask."""

    def run(setting: Setting) -> Finding:
        of_each = torch.tensor([max(n // 8, 1) if setting.quick else n for n in lengths], device=setting.device)
        ends = [0, *itertools.accumulate(of_each.tolist())]
        q, k, v = inputs(setting, *3 * [(ends[-1], 8, 64)])
        mask = block_diagonal(of_each)

        def dense() -> Tensor:
            heads, keys, values = (x.transpose(0, 1)[None] for x in (q, k, v))
            return sdpa(heads, keys, values, attn_mask=mask)[0].transpose(0, 1)

        sides: Sides = {
            "attnbook": lambda: api.attention_varlen(q, k, v, ends, ends, is_causal=True),
            "tiled": lambda: api.attention_varlen(q, k, v, ends, ends, is_causal=True, impl="tiled"),
            "sdpa, mask": dense,
        }
        times = compared(sides, setting)
        figure, tiled = (times.ratio("sdpa, mask", side) for side in ("attnbook", "tiled"))
        ran = api.explain(q, k, v, ends, ends, is_causal=True).impl
        return Finding(figure, times.medians(), note=f"tiled {tiled:.2f}x", ran=ran)

    return run


def block_diagonal(lengths: Tensor) -> Tensor:
    """Booleans (t, t): same document, and not later."""
    document = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    i = torch.arange(len(document), device=lengths.device)
    return (document[:, None] == document) & (i[:, None] >= i)


def experts(setting: Setting) -> Finding:
    """2 of 16 experts for each of 2 048 tokens, d 512, f 1 024, against every expert for every token."""
    t, d, e, f = setting.length(2_048), 512, 16, 1_024
    x, router, gate, up, down = inputs(setting, (t, d), (e, d), (e, d, f), (e, d, f), (e, f, d))
    gate, up, down = (w / w.shape[1] ** 0.5 for w in (gate, up, down))

    def dense() -> Tensor:
        weight, chosen = torch.softmax(x @ router.mT, -1).topk(2)
        share = torch.zeros(t, e, device=x.device).scatter_(1, chosen, weight / weight.sum(-1, keepdim=True))
        y = torch.zeros_like(x)
        for i in range(e):
            y += share[:, i, None] * ((silu(x @ gate[i]) * (x @ up[i])) @ down[i])
        return y

    sides: Sides = {
        "attnbook": lambda: api.moe(x, router, gate, up, down, top_k=2)[0],
        "all experts": dense,
    }
    times = compared(sides, setting)
    return Finding(times.ratio("all experts", "attnbook"), times.medians())
