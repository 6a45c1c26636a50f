"""How much of a KV cache's memory holds tokens: a place for the longest request reserved for each, or pages.

Requests come one after another and have lengths of their own, most short and a few long. The memory is given out until
a request finds no room: as reservations, each for the longest that a request may be, or in pages, by `PagedKVCache`
itself. Kwon et al. 2023 (PagedAttention).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import PagedKVCache


@experiment
def run(
    longest: int = 4096, typical: int = 300, reserved: int = 16, sizes: tuple[int, ...] = (16, 256), repeats: int = 8,
    seed: int = 0,
) -> Any:  # fmt: skip
    """Memory for `reserved` requests of `longest` tokens; lengths log-normal around `typical`, cut at `longest`.

    Data: `lengths` of the first draw; by page size the tokens in use of each request, and the places it holds.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randn(repeats, 20 * reserved, generator=generator).exp().mul(typical).long().clamp(1, longest)
    places = reserved * longest
    measure("practice.paging_places", places)
    measure("practice.paging_reserved", reserved, kind="parameter")
    kept = [1 - float(row[:reserved].sum()) / places for row in lengths]
    measure_mean("practice.paging_reserved_waste", kept, unit="ratio")
    filled = {}
    for size in sizes:
        filled[size] = [fill(row, places // size, size) for row in lengths]
        wasted = [1 - used / held for _, used, held in filled[size]]
        measure_mean(f"practice.paging_waste_{size}", wasted, unit="ratio")
        measure_mean(f"practice.paging_requests_{size}", [admitted for admitted, _, _ in filled[size]])
    most = max(held - used - admitted * (size - 1) for size in sizes for admitted, used, held in filled[size])
    measure("practice.paging_waste_bounded", most <= 0)
    all_long = torch.full((2 * reserved,), longest)
    measure("practice.paging_all_long", fill(all_long, places // sizes[0], sizes[0])[0])
    return {"lengths": lengths[0], "filled": filled}


def fill(lengths: Tensor, n_pages: int, page_size: int) -> tuple[int, int, int]:
    """As many of these requests, in order, as find pages: how many, their tokens, and the places that they hold."""
    most, too_many = 0, len(lengths) + 1
    while too_many - most > 1:
        b = (most + too_many) // 2
        if _held(lengths[:b], n_pages, page_size) is None:
            too_many = b
        else:
            most = b
    return most, int(lengths[:most].sum()), _held(lengths[:most], n_pages, page_size) or 0


def _held(lengths: Tensor, n_pages: int, page_size: int) -> int | None:
    """The places that the pages of these requests hold; None where there are too few pages."""
    if not len(lengths):
        return 0
    cache = PagedKVCache(n_pages, page_size)
    tokens = torch.zeros(1, 1, 1, 1).expand(len(lengths), 1, int(lengths.max()), 1)
    try:
        cache.append(tokens, tokens, lengths)
    except ShapeError:
        return None
    return (n_pages - cache.n_free_pages) * page_size
