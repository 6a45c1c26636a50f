"""Memory in pages, and the table that says which pages are a sequence's.

    page_size 4      pages of sequence 0: 5, 2       position 6 is at page 2, place 2

    page 2   p4 p5 p6 ..
    page 5   p0 p1 p2 p3

Pages are taken where they are free, so that a sequence's pages lie anywhere in memory, and at most page_size − 1 places
of each sequence are wasted. Kwon et al. 2023 (PagedAttention).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnbook.errors import ShapeError


def places(table: Sequence[int], start: int, end: int, pages: Tensor) -> tuple[Tensor, Tensor]:
    """For the positions from start to end: the page of each, and its place in the page; two int64 tensors (t,)."""
    position = torch.arange(start, end, device=pages.device)
    page_size = pages.shape[2]
    return torch.tensor(table, dtype=torch.int64, device=pages.device)[position // page_size], position % page_size


def gather(pages: Tensor, table: Sequence[int], length: int) -> Tensor:
    """The first `length` positions of one sequence, in order: pages (n_pages, h, page_size, d) -> (1, h, length, d)."""
    page, place = places(table, 0, length, pages)
    return pages[page, :, place].transpose(0, 1)[None]


def check_table(table: Sequence[Sequence[int]], lengths: Sequence[int], n_pages: int, page_size: int) -> None:
    """Raises ShapeError unless every page that a sequence needs is there, inside the memory, and its own.

    table: the pages of each sequence, in order; lengths: its tokens.
    """
    if len(table) != len(lengths):
        raise ShapeError(f"lengths has {len(lengths)} sequences (axis b) but page_table {len(table)}: must be equal")
    owner: dict[int, tuple[int, int]] = {}
    for b, (row, length) in enumerate(zip(table, lengths, strict=True)):
        if not 0 <= length <= len(row) * page_size:
            raise ShapeError(
                f"lengths[{b}] is {length}: expected 0 to {len(row) * page_size}, {len(row)} pages of {page_size}"
            )
        for i, page in enumerate(row[: needed(length, page_size)]):
            if not 0 <= page < n_pages:
                raise ShapeError(f"page_table[{b}, {i}] is {page}: expected 0 to {n_pages - 1}, for {n_pages} pages")
            if page in owner:
                first = ", ".join(map(str, owner[page]))
                raise ShapeError(f"page_table[{b}, {i}] is {page}, as is page_table[{first}]: a page has one owner")
            owner[page] = (b, i)


def needed(length: int, page_size: int) -> int:
    """How many pages hold `length` positions."""
    return -(-length // page_size)
