"""Heads cut or joined by the wrong change of shape: what happens when nothing is raised?

cut     view(b, h, t, d) instead of view(b, t, h, d) and a transpose: each head gets a stretch of the text
join    reshape(b, t, h·d) without transposing back: each token gets other tokens' outputs
order   components dealt out to heads one by one: the same shapes, and trained weights in the wrong places
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure, measure_mean
from attnbook.probes import causal_leak
from attnbook.reference import MultiHeadAttention, merge_heads, split_heads

Split = Callable[[Tensor, int], Tensor]


@experiment
def run(d_model: int = 64, n_heads: int = 8, t: int = 64, repeats: int = 8, seed: int = 0) -> None:
    """Causal layers with random weights, one for each repeat, right and in the three wrong ways."""
    torch.manual_seed(seed)
    layers = [MultiHeadAttention(d_model, n_heads, is_causal=True) for _ in range(repeats)]
    x = torch.randn(1, t, d_model)
    with torch.no_grad():
        right = mixed(layers[0], x, split_heads, merge_heads)
        shapes = [mixed(layers[0], x, *way).shape for way in WAYS.values()]
        measure("heads.no_error", all(shape == right.shape for shape in shapes))
        for name in ("right", "cut"):
            measure(f"heads.seen_{name}", seen_by_last(layers[0], x, *WAYS[name]))
        passed = {name: passes(layers[0], x[:, :16], *way) for name, way in WAYS.items()}
        measure("heads.probe_finds_joined", not passed["join"])
        measure("heads.probe_passes_others", passed["right"] and passed["cut"] and passed["order"])
        for name in ("cut", "join", "order"):
            measure_mean(f"heads.off_{name}", [off(layer, x, *WAYS[name]) for layer in layers], unit="ratio")
    measure("heads.view_raises", raises(right))


def cut_by_view(x: Tensor, n_heads: int) -> Tensor:
    """(b, t, n_heads · d) -> (b, n_heads, t, d) with the right shape and the wrong numbers in it."""
    b, t, width = x.shape
    return x.view(b, n_heads, t, width // n_heads)


def join_by_reshape(x: Tensor) -> Tensor:
    """(b, n_heads, t, d) -> (b, t, n_heads · d) in the order in which the numbers lie."""
    b, n_heads, t, d = x.shape
    return x.reshape(b, t, n_heads * d)


def cut_in_turn(x: Tensor, n_heads: int) -> Tensor:
    """(b, t, d · n_heads) -> (b, n_heads, t, d): component c goes to head c % n_heads."""
    b, t, width = x.shape
    return x.view(b, t, width // n_heads, n_heads).permute(0, 3, 1, 2)


WAYS: dict[str, tuple[Split, Callable[[Tensor], Tensor]]] = {
    "right": (split_heads, merge_heads),
    "cut": (cut_by_view, join_by_reshape),  # joined as it was cut, so that every token gets its own place back
    "join": (split_heads, join_by_reshape),
    "order": (cut_in_turn, merge_heads),
}


def mixed(layer: MultiHeadAttention, x: Tensor, split: Split, merge: Callable[[Tensor], Tensor]) -> Tensor:
    """The layer with another way to cut and join heads: x (b, t, d_model) -> (b, t, d_model)."""
    q, k, v = (split(p(x), layer.n_heads) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    y: Tensor = layer.o_proj(merge(attend(q, k, v, is_causal=True)))
    return y


def seen_by_last(layer: MultiHeadAttention, x: Tensor, split: Split, merge: Callable[[Tensor], Tensor]) -> int:
    """How many tokens the last token's output depends on."""
    t = x.shape[1]
    others = x.repeat(t, 1, 1)
    others[torch.arange(t), torch.arange(t)] += 1  # in row j, token j is another
    last = mixed(layer, torch.cat([x, others]), split, merge)[:, -1]
    return int((last[1:] != last[0]).any(-1).sum())


def passes(layer: MultiHeadAttention, x: Tensor, split: Split, merge: Callable[[Tensor], Tensor]) -> bool:
    """Does the probe of chapter 5 find that no output knows of a later token?"""
    return causal_leak(lambda y: mixed(layer, y, split, merge), x).ok


def off(layer: MultiHeadAttention, x: Tensor, split: Split, merge: Callable[[Tensor], Tensor]) -> float:
    """The length of the error over the length of the right output."""
    right = mixed(layer, x, split_heads, merge_heads)
    return float((mixed(layer, x, split, merge) - right).norm() / right.norm())


def raises(x: Tensor) -> bool:
    """Does `view` refuse to join heads that were transposed back, (b, t, h, d) in another order of memory?"""
    torn = x[:, None].repeat(1, 2, 1, 1).transpose(1, 2)  # (b, t, 2, d), lying in memory as (b, 2, t, d)
    try:
        torn.view(*torn.shape[:2], -1)
    except RuntimeError:
        return True
    return False
