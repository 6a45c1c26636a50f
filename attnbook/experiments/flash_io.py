"""How many numbers does attention move between a large slow memory and a small fast one, as tiles shrink?

The counts are those of `attnbook.costs.attention_io`. So that they are more than a formula, attention is also carried
out on tensors that can only be read and written through a counter (`Slow`), tile by tile and in three passes: what was
moved is what the model says, and what came out is attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.costs import AttentionIO, attention_io
from attnbook.experiments._attend import attend
from attnbook.experiments.flash_exact import draw
from attnbook.measure import experiment, measure
from attnbook.reference import merge

USUAL = 128
"""Queries and keys of a tile that a GPU holds with ease."""

SHAPES = ((24, 4, 8, 8, False), (24, 4, 8, 8, True), (29, 5, 7, 4, True), (31, 3, 64, 5, False))
"""Sizes that are counted by doing it: n, d, queries and keys of a tile, is_causal."""


@experiment
def run(n: int = 4096, d: int = 64, seed: int = 0) -> dict[str, Any]:
    """One head of n queries and keys of d components; square tiles from 1 × 1 to 512 × 512.

    Data, a number for each tile: `tiles` (rows), `fast` (numbers of fast memory), `moved` (numbers); `plain` (number).
    """
    tiles = [1 << i for i in range(10)]
    counts = [attention_io(n, head_dim=d, tile_q=tile, tile_k=tile) for tile in tiles]
    usual = attention_io(n, head_dim=d, tile_q=USUAL, tile_k=USUAL)
    measure("flash.io_plain", usual.standard)
    measure("flash.io_table_share", 4 * n * n / usual.standard, unit="ratio")
    measure("flash.io_usual", usual.tiled)
    measure("flash.io_usual_fast", usual.fast_memory)
    measure("flash.io_ratio", usual.standard / usual.tiled, unit="ratio")
    measure("flash.io_one", counts[0].tiled / usual.standard, unit="ratio")
    measure("flash.io_halved", counts[3].tiled / counts[4].tiled, unit="ratio")
    measure("flash.io_meets_rows", meeting(n, d).tile_q)
    measure("flash.io_meets_fast", meeting(n, d).fast_memory)
    measure("flash.io_meets_rows_wider", meeting(n, 2 * d).tile_q)
    single = attention_io(n, head_dim=d, tile_q=n, tile_k=n)
    measure("flash.io_single", single.tiled)
    measure("flash.io_single_fast", single.fast_memory)
    causal = attention_io(n, head_dim=d, tile_q=USUAL, tile_k=USUAL, is_causal=True)
    measure("flash.io_causal", causal.tiled / usual.tiled, unit="ratio")
    keys_first = attention_io(n, head_dim=d, tile_q=USUAL, tile_k=USUAL, order="keys")
    measure("flash.io_keys_first", keys_first.tiled / usual.tiled, unit="ratio")
    checks = [_check(*shape, seed) for shape in SHAPES]
    measure("flash.io_as_counted", all(agrees for agrees, _ in checks))
    measure("flash.io_error", torch.tensor([error for _, error in checks]).max())
    return {
        "tiles": tiles,
        "fast": [count.fast_memory for count in counts],
        "moved": [count.tiled for count in counts],
        "plain": usual.standard,
    }


def meeting(n: int, d: int) -> AttentionIO:
    """The count of the smallest square tiles with which no more is moved than without tiles."""
    counts = (attention_io(n, head_dim=d, tile_q=tile, tile_k=tile) for tile in range(1, n + 1))
    return next(count for count in counts if count.tiled <= count.standard)


class Slow:
    """Tensors in slow memory: every number that is read from them or written to them is counted."""

    def __init__(self, **tensors: Tensor) -> None:
        self.tensors = tensors
        self.reads = self.writes = 0

    def read(self, name: str, rows: slice = slice(None)) -> Tensor:
        """A copy of some rows, in fast memory."""
        copy = self.tensors[name][rows].clone()
        self.reads += copy.numel()
        return copy

    def write(self, name: str, x: Tensor, rows: slice = slice(None)) -> None:
        """Put rows back."""
        self.tensors[name][rows] = x
        self.writes += x.numel()


def tile_by_tile(slow: Slow, n: int, tile_q: int, tile_k: int, is_causal: bool) -> None:
    """Attention of q, k, v (n, d) into out (n, d) and lse (n,): queries outside, keys inside, nothing else written."""
    for first in range(0, n, tile_q):
        some = slice(first, min(first + tile_q, n))
        q = slow.read("q", some)
        out, lse = torch.zeros_like(q), q.new_full(q.shape[:1], -torch.inf)
        end = some.stop if is_causal else n
        for start in range(0, end, tile_k):
            keys = slice(start, min(start + tile_k, n))
            k, v = slow.read("k", keys), slow.read("v", keys)
            score = q @ k.T / q.shape[1] ** 0.5
            if is_causal:
                hidden = torch.arange(first, some.stop)[:, None] < torch.arange(start, keys.stop)
                score = score.masked_fill(hidden, -torch.inf)
            part_lse = torch.logsumexp(score, 1)
            weight = torch.exp(score - part_lse.masked_fill(part_lse == -torch.inf, 0.0)[:, None])
            out, lse = merge(out, lse, weight @ v, part_lse)
        slow.write("out", out, some)
        slow.write("lse", lse, some)


def three_passes(slow: Slow, is_causal: bool) -> None:
    """The same into out, with the scores and the weights in slow memory."""
    q, k = slow.read("q"), slow.read("k")
    slow.write("score", q @ k.T / q.shape[1] ** 0.5)
    score = slow.read("score")
    if is_causal:
        score = score.masked_fill(torch.ones_like(score).triu(1) == 1, -torch.inf)
    slow.write("weight", torch.softmax(score, 1))
    slow.write("out", slow.read("weight") @ slow.read("v"))


def _check(n: int, d: int, tile_q: int, tile_k: int, is_causal: bool, seed: int) -> tuple[bool, float]:
    """Is what is moved what the model says, both ways? And how far is what comes out from attention?"""
    q, k, v = draw(1, n, d, seed)
    truth = attend(q, k, v, is_causal=is_causal)[0, 0]
    model = attention_io(n, head_dim=d, tile_q=tile_q, tile_k=tile_k, is_causal=is_causal)
    given = {"q": q[0, 0], "k": k[0, 0], "v": v[0, 0]}
    in_tiles = Slow(**given, out=torch.zeros_like(truth), lse=torch.zeros(n, dtype=q.dtype))
    tile_by_tile(in_tiles, n, tile_q, tile_k, is_causal)
    table = torch.zeros(n, n, dtype=q.dtype)
    in_passes = Slow(**given, out=torch.zeros_like(truth), score=table, weight=table.clone())
    three_passes(in_passes, is_causal)
    moved = [(slow.reads, slow.writes) for slow in (in_tiles, in_passes)]
    told = [(model.tiled_reads, model.tiled_writes), (model.standard_reads, model.standard_writes)]
    errors = torch.stack([slow.tensors["out"] - truth for slow in (in_tiles, in_passes)])
    return moved == told, float(errors.abs().max())
