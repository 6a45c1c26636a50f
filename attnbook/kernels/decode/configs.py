"""How decoding is cut: keys of a split, rows and keys of a tile, warps, stages, for each size, dtype and target.

What stands out: nothing here asks for the batch. The order in which a sequence's numbers are added follows from these
sizes, so that a request gives the same bits alone and among others. No configuration here has been timed on a GPU:
they are what compiles without spilling registers, and leaves room for two programs on a multiprocessor, of which one
calculates while the other waits for memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnbook.kernels.flash.configs import padded
from attnbook.kernels.targets import Target

TILE_BYTES = 16 * 1024
"""A tile of keys, about: what is on its way to a program while it calculates with the one before."""

PARTS = 16
"""Parts that the merging kernel takes at a time."""

MERGE_WARPS = 4
"""Warps of the merging kernel: a row of 16 · d_v numbers at a time."""


@dataclass(frozen=True)
class Config:
    """How the kernel of one split is cut."""

    split: int
    """Keys of a split."""
    tile_rows: int
    """Rows of a tile: (head of the group, query) pairs. At least 16, the height of a matrix instruction."""
    tile_k: int
    """Keys of a tile."""
    num_warps: int
    num_stages: int
    """How many tiles of keys are on their way at a time."""


def split_config(rows: int, head_dim: int, d_v: int, element_bytes: int, target: Target) -> Config:
    """How a sequence is cut that has so many rows (query heads of a group × queries) for each key/value head.

    A part costs its average, rows · d_v numbers of float32, written and read again: splits are longer where there are
    more rows, so that this stays small beside the keys and values that are read.
    """
    widest = max(padded(head_dim), padded(d_v))
    tile_rows = min(padded(rows), 64)
    split = 256 if tile_rows == 16 else 512
    if target.interpreted:
        return Config(split, tile_rows, 64, num_warps=4, num_stages=1)
    tile_k = max(min(TILE_BYTES // (widest * element_bytes), 128), 16)
    two_tiles = 2 * widest * tile_k * element_bytes
    num_stages = 3 if 2 * 3 * two_tiles <= target.shared_bytes_per_sm else 2
    num_warps = 8 if tile_rows == 64 and widest == 256 else 4
    return Config(split, tile_rows, tile_k, num_warps, num_stages)
