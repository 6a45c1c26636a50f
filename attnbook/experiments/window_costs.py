"""What does a window save? Pairs, tiles, operations carried out, and memory, at lengths that double.

Everything is counted on calls that really run: the mask's pairs one by one, the tiles in the plan that the tiled
implementation follows, the products that torch carries out, and every byte that torch takes. `attnbook.costs`, which
only calculates, stands beside each.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from attnbook import tiled
from attnbook.costs import attention_flops, attention_io, attention_memory, bytes_of, count_pairs
from attnbook.experiments._peak import peak_bytes
from attnbook.measure import experiment, measure
from attnbook.reference import causal_mask, window_mask
from attnbook.tiled.plan import plan


@experiment
def run(
    lengths: tuple[int, ...] = (1024, 2048, 4096), window: int = 256, d: int = 64, tile: int = 64, seed: int = 0
) -> Any:
    """One head of `d` components at each of the lengths. Data: `lengths`, `tiles` and `bytes` by their kind."""
    like = torch.zeros(0)
    long, half = lengths[-1], lengths[-2]
    counted = {t: int(window_mask(t, t, window, like=like).sum()) for t in lengths}
    measure("window.pairs", counted[long])
    measure("window.pairs_causal", int(causal_mask(long, like=like).sum()))
    measure("window.pairs_growth", counted[long] / counted[half], unit="ratio")
    sizes = [(t, t, w) for t in (5, 12, 64) for w in (1, 4, 12, 100)] + [(3, 12, 4), (12, 3, 4)]
    alike = [
        int(window_mask(a, b, w, like=like).sum()) == count_pairs(a, b, is_causal=True, window=w) for a, b, w in sizes
    ]
    measure("window.pairs_as_counted", all(alike))
    formula = [window * t - window * (window - 1) // 2 for t in lengths]
    measure("window.pairs_formula", formula == list(counted.values()))

    kinds = {"window": window, "causal": None}
    visited = {name: [tiles_visited(t, w, tile) for t in lengths] for name, w in kinds.items()}
    told = {
        name: [attention_io(t, head_dim=d, is_causal=True, window=w, tile_q=tile, tile_k=tile).tiles for t in lengths]
        for name, w in kinds.items()
    }
    measure("window.tiles", visited["window"][-1])
    measure("window.tiles_causal", visited["causal"][-1])
    measure("window.tiles_growth", visited["window"][-1] / visited["window"][-2], unit="ratio")
    measure("window.tiles_causal_growth", visited["causal"][-1] / visited["causal"][-2], unit="ratio")
    measure("window.tiles_as_told", visited == told)

    torch.manual_seed(seed)
    held: dict[str, list[int]] = {"window": [], "mask": []}
    for t in lengths:
        q, k, v = torch.randn(3, 1, 1, t, d)
        ours = partial(tiled.attention, q, k, v, is_causal=True, window=window, tile_q=tile, tile_k=tile)
        mask = window_mask(t, t, window, like=q)
        theirs = partial(scaled_dot_product_attention, q, k, v, attn_mask=mask)
        held["window"].append(peak_bytes(ours))
        held["mask"].append(peak_bytes(theirs))
    with FlopCounterMode(display=False) as done:
        ours()
    needed = attention_flops(long, n_heads=1, head_dim=d, is_causal=True, window=window).forward
    measure("window.work_over_needed", done.get_total_flops() / needed, unit="ratio")
    apart = (ours() - theirs()).abs().max()
    measure("window.tiled_error", apart)
    measure("window.bytes", held["window"][-1], unit="B")
    told_bytes = attention_memory(long, n_heads=1, head_dim=d, dtype="float32")
    measure("window.bytes_rest_is_constant", rest_is_constant(lengths, held["window"], d))
    measure("window.bytes_told", told_bytes.out + told_bytes.lse, unit="B")
    measure("window.bytes_growth", held["window"][-1] / held["window"][-2], unit="ratio")
    measure("window.bytes_mask", held["mask"][-1], unit="B")
    measure("window.bytes_mask_told", told_bytes.scores, unit="B")
    measure("window.bytes_mask_growth", held["mask"][-1] / held["mask"][-2], unit="ratio")
    measure("window.bytes_booleans", bytes_of(mask.numel(), "int8"), unit="B")
    return {"lengths": lengths, "tiles": visited, "bytes": held}


def rest_is_constant(lengths: tuple[int, ...], held: list[int], d: int) -> bool:
    """Is what is held beside the output and its log-sum-exp the same at every length?"""
    told = [attention_memory(t, n_heads=1, head_dim=d, dtype="float32") for t in lengths]
    return len({mine - one.out - one.lse for mine, one in zip(held, told, strict=True)}) == 1


def tiles_visited(t: int, window: int | None, tile: int) -> int:
    """The tiles of keys that the tiled implementation goes to, for all tiles of queries together."""
    return sum(len(row.keys) for row in plan(t, t, True, window, tile, tile))
