"""Where does attention overtake the feed-forward part, and what does a longer text really cost?

Operations are those that torch's counter sees while a block runs. A small block runs with numbers; blocks of published
sizes run without any (torch's device "meta"), which multiplies nothing and is counted all the same. Beside each count
stands `attnbook.costs.model_flops`, and beside the length at which attention overtakes, the formula

    whole attention:         4·t²·a + 4·t·d·(a + g)  =  2·m·t·d·f         t = (m·d·f − 2·d·(a + g)) / 2a
    its two products alone:  4·t²·a                  =  2·m·t·d·f         t = m·d·f / 2a

with d = d_model, a = n_heads · head_dim, g = n_kv_heads · head_dim, f = d_ff, and m matrices in the feed-forward part.
With a = g = d, f = 4d and m = 2 that is 2d and 4d.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attnbook.costs import LayerFlops, ModelShape, model, model_flops, names
from attnbook.measure import experiment, measure
from attnbook.reference import TransformerBlock
from attnbook.reference.three_lines import attention

SHOWN = {"qwen": "Qwen2.5-0.5B", "llama": "Llama-3.1-8B", "llama70": "Llama-3.1-70B", "gemma": "Gemma-3-27B"}
LONGEST = 1 << 20


@experiment
def run(d_model: int = 64, n_heads: int = 8, short: int = 4096, long: int = 65536) -> Any:
    """A plain small block, run; a block of every dense model of the table, counted; one model at two lengths, doubled.

    Data: `lengths`, and for them `projections`, `attention`, `feed_forward`, the shares of Llama-3.1-8B's block;
    `overtaken`, for each model the length at which attention is as much as its feed-forward part.
    """
    small = plain_shape(d_model, n_heads)
    measure("costs.small_as_counted", all(counted(small, t) == layer(small, t) for t in (d_model, 3 * d_model)))
    measure("costs.overtakes_small", overtakes(partial(counted, small), most=8 * d_model))
    measure("costs.products_overtake_small", overtakes(partial(counted, small), alone=True, most=8 * d_model))
    shapes = [shape for shape in map(model, names()) if shape.experts is None and shape.latent is None]
    blocks = [all(counted(s, t, device="meta") == layer(s, t) for t in (1, 1000)) for s in shapes]
    measure("costs.blocks_counted", len(blocks))
    measure("costs.blocks_as_counted", all(blocks))
    where = {s.name: overtakes(partial(layer, s)) for s in shapes}
    alone = {s.name: overtakes(partial(layer, s), alone=True) for s in shapes}
    exact = [where[s.name] == ceil(formula(s)) and alone[s.name] == ceil(formula(s, alone=True)) for s in shapes]
    measure("costs.formula_exact", all(exact))
    for key, name in SHOWN.items():
        measure(f"costs.overtakes_{key}", where[name])
        measure(f"costs.products_{key}", alone[name])
    measure("costs.overtakes_least", min(where.values()))
    measure("costs.overtakes_most", max(where.values()))
    measure("costs.overtakes_over_d_least", min(where[s.name] / s.d_model for s in shapes), unit="ratio")
    measure("costs.overtakes_over_d_most", max(where[s.name] / s.d_model for s in shapes), unit="ratio")
    return {"overtaken": where, **_measure_growth(model(SHOWN["llama"]), short, long)}


def plain_shape(d_model: int, n_heads: int) -> ModelShape:
    """One layer as Vaswani et al. have it: as many heads for keys as for queries, two matrices, d_ff = 4 · d_model."""
    return ModelShape(
        "plain", 1, d_model, n_heads, n_heads, d_model // n_heads, vocab=0, windows=(None,), d_ff=4 * d_model,
        gated=False,
    )  # fmt: skip


def attend(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Any:
    """The three lines, heads of keys and values repeated for the queries': nothing in them depends on numbers."""
    group = q.shape[1] // k.shape[1]
    return attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


class Block(TransformerBlock):
    """A block that can run without numbers."""

    attend = staticmethod(attend)


def counted(shape: ModelShape, t: int, device: str = "cpu") -> LayerFlops:
    """The operations of one block of this shape on t tokens, as torch carries them out."""
    block = Block(
        shape.d_model, shape.n_heads, n_kv_heads=shape.n_kv_heads, head_dim=shape.head_dim, d_ff=shape.d_ff,
        activation="swiglu" if shape.gated else "gelu", device=device,
    )  # fmt: skip
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        block(torch.ones(1, t, shape.d_model, device=device))
    by_module = {name: sum(found.values()) for name, found in counter.get_flop_counts().items()}
    whole = by_module["Block.attention"]
    maps = sum(by_module[f"Block.attention.{name}_proj"] for name in "qkvo")
    return LayerFlops(projections=maps, attention=whole - maps, feed_forward=by_module["Block.mlp"])


def layer(shape: ModelShape, t: int, *, is_causal: bool = False) -> LayerFlops:
    """The same by `attnbook.costs`; without causal, so with every pair, as the three lines calculate them."""
    return model_flops(shape, t, is_causal=is_causal).layers[-1]


def overtaken(flops: LayerFlops, *, alone: bool = False) -> bool:
    """Is attention at least as much as the feed-forward part: all of it, or its two products alone?"""
    return flops.attention + (0 if alone else flops.projections) >= flops.feed_forward


def formula(shape: ModelShape, *, alone: bool = False) -> Fraction:
    """The length at which both are equal."""
    d, a, g = shape.d_model, shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    feed_forward = (3 if shape.gated else 2) * d * (shape.d_ff or 0)
    return Fraction(feed_forward - (0 if alone else 2 * d * (a + g)), 2 * a)


def overtakes(count: Callable[[int], LayerFlops], *, alone: bool = False, most: int = LONGEST) -> int:
    """The first length from which on attention is at least as much, by such counts."""
    return first(lambda t: overtaken(count(t), alone=alone), most)


def first(true: Callable[[int], bool], most: int) -> int:
    """The first length from 1 on for which it is true, and for all after it; by halving. ValueError if none is."""
    if not true(most):
        raise ValueError(f"expected a length up to {most} at which it is true, found none")
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if true(middle) else (middle, high)
    return high


def _measure_growth(shape: ModelShape, short: int, long: int) -> dict[str, Any]:
    """What doubling costs this model's layer, with hidden pairs calculated and with those left out."""
    measure("costs.overtakes_llama_causal", overtakes(partial(layer, shape, is_causal=True)))
    for name, t in (("short", short), ("long", long)):
        once, twice = layer(shape, t), layer(shape, 2 * t)
        measure(f"costs.products_growth_{name}", twice.attention / once.attention, unit="ratio")
        measure(f"costs.layer_growth_{name}", twice.total / once.total, unit="ratio")
        measure(f"costs.products_share_{name}", once.attention / once.total, unit="ratio")
    lengths = [2**power for power in range(8, 19)]
    every = [layer(shape, t) for t in lengths]
    parts = ("projections", "attention", "feed_forward")
    return {"lengths": lengths, **{part: [getattr(f, part) / f.total for f in every] for part in parts}}
