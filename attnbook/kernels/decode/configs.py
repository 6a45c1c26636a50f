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

MERGE_WARPS, MERGE_STAGES = 4, 1
"""Of the merging kernel, each program of which has one row of the result: warps, and stages of its loop."""


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
    descriptors: bool = False
    """Does the target copy tiles of keys by descriptor (TMA), where `in_whole_tiles` and the memory allows it?"""


def split_config(
    rows: int, head_dim: int, d_v: int, element_bytes: int, target: Target, *, paged: bool = False
) -> Config:
    """How a sequence is cut that has so many rows (query heads of a group × queries) for each key/value head.

    A part costs its average, rows · d_v numbers of float32, written and read again: splits are longer where there are
    more rows, so that this stays small beside the keys and values that are read.
    """
    widest = max(padded(head_dim), padded(d_v))
    tile_rows = 16 if rows <= 16 else 32
    split = 256 if rows <= 16 else 512
    if target.interpreted:
        return Config(split, tile_rows, 64, num_warps=4, num_stages=1)
    tile_bytes = TILE_BYTES if element_bytes == 2 else TILE_BYTES // 2
    tile_k = max(min(tile_bytes // (widest * element_bytes), 2048 // tile_rows), 16)
    both = 2 * widest * tile_k * element_bytes  # a tile of keys and one of values
    num_stages = 3 if 2 * 3 * both <= target.shared_bytes_per_sm else 2
    if paged:
        num_stages = 2 * num_stages - 1  # the numbers of the pages are on their way first, as long as the pages then
    # float32 is not multiplied by matrix instructions, but from registers. Wide rows and the numbers of pages take more
    # registers than four warps have (Triton 3.7).
    num_warps = 8 if element_bytes == 4 or widest == 256 or (paged and widest <= 64) else 4
    return Config(split, tile_rows, tile_k, num_warps, num_stages, descriptors=target.has_descriptors)


def in_whole_tiles(config: Config, page_size: int, window: int | None) -> bool:
    """May tiles be copied whole, as a descriptor does? page_size is 0 where keys lie one after another.

    A page must hold whole tiles: one that is copied is of one page. Behind a window the first tile begins anywhere, so
    that its end would be in the next split or page, or its beginning be keys that are hidden and may be NaN: pointers.
    """
    return window is None and config.split % config.tile_k == 0 and page_size % config.tile_k == 0


def parts_at_a_time(d_v: int) -> int:
    """How many averages of parts the merging kernel adds at a time: 2048 numbers, 16 for each thread."""
    return 2048 // padded(d_v)
