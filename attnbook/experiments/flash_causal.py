"""Which tiles does a causal mask let a tiled attention skip, and is anything missing afterwards?

Counted from the plan that `attnbook.tiled` follows, from the model of two memories, and from the matrix products that
torch carries out: three counts that must agree.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook import tiled
from attnbook.costs import attention_io
from attnbook.experiments._attend import attend
from attnbook.experiments.flash_exact import draw, operations
from attnbook.measure import experiment, measure
from attnbook.tiled.plan import plan

SMALL = ((67, 67, 8, 8), (67, 67, 13, 7), (5, 67, 4, 16), (67, 5, 8, 2))
"""Sizes at which the result is compared: t_q, t_kv, rows of a tile of each. In the last most queries see no key."""


@experiment
def run(n: int = 4096, tile: int = 128, counted: int = 1024, d: int = 32, seed: int = 0) -> dict[str, Any]:
    """Tiles of `tile` queries and keys: counted in the plan for n tokens, carried out for `counted`.

    Data: `kinds` (8, 8), of a plan with 8 × 8 tiles: 0 skipped, 1 whole, 2 with a hidden pair.
    """
    visited = [keys for queries in plan(n, n, True, None, tile, tile) for keys in queries.keys]
    model = attention_io(n, head_dim=d, tile_q=tile, tile_k=tile, is_causal=True)
    measure("flash.tiles_in_all", model.tiles_in_all)
    measure("flash.tiles_visited", len(visited))
    measure("flash.tiles_share", len(visited) / model.tiles_in_all, unit="ratio")
    measure("flash.tiles_at_edge", sum(bool(keys.edges) for keys in visited))
    measure("flash.tiles_as_model", model.tiles == len(visited))
    measure("flash.tiles_as_products", _products_agree(counted, tile, d))
    errors = []
    for t_q, t_kv, tile_q, tile_k in SMALL:
        q, k, v = draw(2, max(t_q, t_kv), 5, seed)
        some = q[:, :, :t_q], k[:, :, :t_kv], v[:, :, :t_kv]
        out = tiled.attention(*some, is_causal=True, tile_q=tile_q, tile_k=tile_k)
        errors.append((out - attend(*some, is_causal=True)).abs().max())
    measure("flash.causal_error", torch.stack(errors).max())
    kinds = torch.zeros(8, 8)
    for i, queries in enumerate(plan(64, 64, True, None, 8, 8)):
        for keys in queries.keys:
            kinds[i, keys.start // 8] = 2 if keys.edges else 1
    return {"kinds": kinds}


def _products_agree(n: int, tile: int, d: int) -> bool:
    """Is the share of operations that a causal call really carries out the share of tiles that the plan visits?"""
    q, k, v = draw(1, n, d, 0)

    def call(causal: bool) -> int:
        return operations(lambda *x: tiled.attention(*x, is_causal=causal, tile_q=tile, tile_k=tile), q, k, v)

    model = attention_io(n, head_dim=d, tile_q=tile, tile_k=tile, is_causal=True)
    return call(True) * model.tiles_in_all == call(False) * model.tiles
