"""Assignments sorted by expert: a stable counting sort in two launches, the same on every run.

    experts (t, k)    flat        order         row_bounds        place (t, k)
    [[2, 0],          2 0         1 2 0 4 3     0 2 2 4 5         [[2, 0],
     [0, 3],          0 3         e0  e2  e3                       [1, 4],
     [2, −1]]         2 −1        expert 1: none                   [3, −1]]     −1 was dropped

Every program looks at one tile of the flat list. An assignment's rank is how many before it in the tile have the same
expert; the last of each expert knows the tile's count. Between the launches torch adds the counts up, expert by expert
and tile by tile. No atomic operation: what lies where depends on the input alone. (A radix sort of the same list would
move every assignment several times; here each is written once.)
"""

# Bodies of kernels are Triton, which has no types to check.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.kernels import outputs
from attnbook.kernels.moe import configs
from attnbook.kernels.variant import ALWAYS


class Sorted(NamedTuple):
    """Where each assignment went; what a launch over the sorted rows needs. All int32, on the device."""

    order: Tensor
    """(t · k) the assignment, token · k + slot, of each sorted row; behind the last expert's rows it is undefined."""
    token: Tensor
    """(t · k) its token, undefined likewise."""
    place: Tensor
    """(t, k) the sorted row of each assignment; −1 where it was dropped."""
    row_bounds: Tensor
    """(e + 1) where each expert's rows begin, and where the last one's end."""


@triton.jit
def load_experts(experts, at, n, n_experts):
    """The experts of some assignments; −1 for a dropped one, for what is no expert, and beyond the end."""
    expert = tl.load(experts + at, mask=at < n, other=-1)
    return tl.where((expert >= 0) & (expert < n_experts), expert, -1).to(tl.int32)


@triton.jit
def rank_in_tile(expert, TILE: tl.constexpr):
    """How many before each in the tile have the same expert, and whether nobody behind it has; (TILE,)."""
    index = tl.arange(0, TILE)
    same = expert[:, None] == expert[None, :]  # (TILE, TILE)
    before = same & (index[None, :] < index[:, None])
    behind = same & (index[None, :] > index[:, None])
    return tl.sum(before.to(tl.int32), 1), tl.sum(behind.to(tl.int32), 1) == 0


@triton.jit
def count_kernel(experts, counts, n, n_experts, TILE: tl.constexpr):
    """Fills counts (tiles, e): how many assignments of each tile go to each expert; 0 is there already."""
    tile = tl.program_id(0)
    expert = load_experts(experts, tile.to(tl.int64) * TILE + tl.arange(0, TILE), n, n_experts)
    rank, is_last = rank_in_tile(expert, TILE)
    tl.store(counts + tile.to(tl.int64) * n_experts + expert, rank + 1, mask=is_last & (expert >= 0))


@triton.jit
def place_kernel(experts, starts, order, token, place, n, n_experts, top_k, TILE: tl.constexpr):
    """Each assignment to its sorted row: starts (tiles, e) is the first row of an expert's assignments of a tile."""
    tile = tl.program_id(0)
    at = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    expert = load_experts(experts, at, n, n_experts)
    rank, _ = rank_in_tile(expert, TILE)
    kept = expert >= 0
    start = tl.load(starts + tile.to(tl.int64) * n_experts + expert, mask=kept, other=0)
    row = start + rank
    tl.store(order + row, at.to(tl.int32), mask=kept)
    tl.store(token + row, (at // top_k).to(tl.int32), mask=kept)
    tl.store(place + at, tl.where(kept, row, -1), mask=at < n)


def count(experts: Tensor, n_experts: int) -> Tensor:
    """How many assignments each tile of the flat list has for each expert; experts (t, k) -> (tiles, e) int32.

    Anything but 0 … n_experts − 1 counts for nobody. Raises ShapeError where int32 cannot number them.
    """
    n = experts.numel()
    if n >= 2**31:
        raise ShapeError(f"experts has {n} assignments (axes t, k): the kernels number fewer than 2**31")
    tile = configs.sort()
    counts = experts.new_zeros((triton.cdiv(n, tile.rows), n_experts), dtype=torch.int32)
    if counts.numel():
        count_kernel[(counts.shape[0],)](
            experts.contiguous(), counts, n, n_experts,
            TILE=tile.rows, num_warps=tile.num_warps, num_stages=tile.num_stages, **ALWAYS,
        )  # fmt: skip
    return counts


def by_expert(experts: Tensor, n_experts: int, counts: Tensor | None = None) -> Sorted:
    """Sort the assignments of experts (t, k) by expert, then by token; `counts` from `count`, where it is known."""
    counts = count(experts, n_experts) if counts is None else counts
    ends = counts.T.flatten().cumsum(0, dtype=torch.int32).view(n_experts, -1).T  # (tiles, e), expert by expert
    row_bounds = counts.new_zeros(n_experts + 1)
    order, token = (outputs.empty((experts.numel(),), experts, torch.int32) for _ in range(2))
    place = outputs.empty(tuple(experts.shape), experts, torch.int32)
    if counts.numel():
        row_bounds[1:] = ends[-1]
        tile = configs.sort()
        place_kernel[(counts.shape[0],)](
            experts.contiguous(), (ends - counts).contiguous(), order, token, place, experts.numel(), n_experts,
            experts.shape[-1], TILE=tile.rows, num_warps=tile.num_warps, num_stages=tile.num_stages, **ALWAYS,
        )  # fmt: skip
    else:
        place.fill_(-1)
    return Sorted(order, token, place, row_bounds)


def tile_bounds(row_bounds: Tensor, tile_rows: int) -> Tensor:
    """(e + 1) int32: where each expert's tiles begin when its rows are cut into tiles of its own."""
    tiles = (row_bounds.diff() + (tile_rows - 1)) // tile_rows
    return torch.nn.functional.pad(tiles.cumsum(0, dtype=torch.int32), (1, 0))
