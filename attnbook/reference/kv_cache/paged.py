"""The cache for many requests at once: sequences of different lengths share one memory, page by page.

What pages and tables are: `attnbook.reference.kv_cache.pages`. Kwon et al. 2023 (PagedAttention).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.reference.kv_cache.checks import check_append, check_batch, check_whole, empty_like, whole_numbers
from attnbook.reference.kv_cache.pages import check_table, gather, needed, places


class PagedKVCache:
    """Keys and values of sequences that differ in length, in `n_pages` pages of `page_size` positions.

    `n_pages`: how many there are; None makes more when none is free, twice as many each time. The number of sequences
    is that of the first append; `free` makes one's place ready for another request.

    Raises ValueError for sizes below 1.
    """

    def __init__(self, n_pages: int | None = None, page_size: int = 16) -> None:
        if n_pages is not None:
            check_whole("n_pages", n_pages, 1)
        check_whole("page_size", page_size, 1)
        self._grows = n_pages is None
        self.n_pages, self.page_size = int(n_pages or 0), int(page_size)
        self._pages: tuple[Tensor, Tensor] | None = None  # (n_pages, h, page_size, d) and (…, d_v)
        self._unused = list(range(self.n_pages))[::-1]  # the last one is taken first
        self._table: list[list[int]] = []  # the pages of each sequence, in order of position
        self._lengths: list[int] = []
        self._starts: list[int] = []  # each sequence's length before the last append …
        self._t_new = 0  # … which brought so many rows, filling included

    @classmethod
    def from_pages(
        cls, k_pages: Tensor, v_pages: Tensor, page_table: Tensor | Iterable[Iterable[int]], lengths: Iterable[int]
    ) -> PagedKVCache:
        """A cache over memory that is there already; it is used, not copied.

        k_pages (n_pages, n_kv_heads, page_size, d), v_pages (…, d_v); page_table (b, m) page numbers, in order of
        position, anything where a sequence needs no page; lengths (b,). Raises ShapeError for a table that points
        outside, or gives a page to two sequences, or has too few pages for a length.
        """
        check_append(k_pages, v_pages, None)
        n_pages, _, page_size, _ = k_pages.shape
        cache = cls(n_pages, page_size)
        lengths = whole_numbers("lengths", lengths)
        if not isinstance(page_table, Iterable):
            raise TypeError(f"page_table is {page_table!r}: expected a row of page numbers for each sequence")
        table = [whole_numbers(f"page_table[{b}]", row) for b, row in enumerate(page_table)]
        check_table(table, lengths, n_pages, page_size)
        cache._table = [row[: needed(n, page_size)] for row, n in zip(table, lengths, strict=True)]
        taken = {page for row in cache._table for page in row}
        cache._unused = [page for page in cache._unused if page not in taken]
        cache._pages, cache._lengths, cache._starts = (k_pages.detach(), v_pages.detach()), lengths, list(lengths)
        return cache

    def append(self, k: Tensor, v: Tensor, new_lengths: Tensor | Iterable[int] | None = None) -> None:
        """Keep the next tokens of each sequence: k (b, n_kv_heads, t_new, d), v (b, n_kv_heads, t_new, d_v).

        `new_lengths` (b,): how many of the t_new rows each sequence really has, the first ones; the rest is filling and
        may hold anything. None: all. Raises ShapeError where something doesn't fit or no pages are left, DTypeError,
        and ValueError for another device. The cache is then what it was.
        """
        check_append(k, v, self._pages)
        b, _, t_new, _ = k.shape
        if self._pages is not None:
            check_batch(b, len(self._lengths))
        new = self._new_lengths(new_lengths, b, t_new)
        starts = self._lengths or [0] * b
        table = [list(row) for row in self._table] or [[] for _ in range(b)]
        more = [needed(old + n, self.page_size) - len(row) for old, n, row in zip(starts, new, table, strict=True)]
        missing = sum(more) - len(self._unused)
        if missing > 0 and not self._grows:
            raise ShapeError(
                f"k needs {sum(more)} more pages of {self.page_size} positions but {len(self._unused)} of "
                f"{self.n_pages} are free"
            )
        if self._pages is None or missing > 0:
            self._pages = self._with_room(missing, k, v)
        for i, n in enumerate(new):
            table[i] += [self._unused.pop() for _ in range(more[i])]
            page, place = places(table[i], starts[i], starts[i] + n, self._pages[0])
            for pages, x in zip(self._pages, (k, v), strict=True):
                pages[page, :, place] = x[i, :, :n].detach().transpose(0, 1)  # (n, h, d)
        self._table, self._starts, self._t_new = table, list(starts), t_new
        self._lengths = [old + n for old, n in zip(starts, new, strict=True)]

    def _with_room(self, missing: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The memory, larger by `missing` pages at least where it grows; every page keeps its number."""
        n_pages = self.n_pages + (max(missing, self.n_pages, 1) if self._grows else 0)
        larger = tuple(empty_like(x, (n_pages, x.shape[1], self.page_size, x.shape[3])) for x in (k, v))
        for new, old in zip(larger, self._pages or (), strict=False):
            new[: self.n_pages] = old
        self._unused[:0] = range(self.n_pages, n_pages)[::-1]  # taken after those that were free before
        self.n_pages = n_pages
        return larger[0], larger[1]

    @staticmethod
    def _new_lengths(new_lengths: Tensor | Iterable[int] | None, b: int, t_new: int) -> list[int]:
        if new_lengths is None:
            return [t_new] * b
        new = whole_numbers("new_lengths", new_lengths)
        if len(new) != b:
            raise ShapeError(f"new_lengths has {len(new)} sequences (axis b) but k has {b}: they must be equal")
        for i, n in enumerate(new):
            if not 0 <= n <= t_new:
                raise ShapeError(f"new_lengths[{i}] is {n}: expected 0 to {t_new}, the length of k (axis t)")
        return new

    def sequence(self, b: int) -> tuple[Tensor, Tensor]:
        """The keys (1, n_kv_heads, length, d) and values (1, n_kv_heads, length, d_v) of one sequence: copies.

        Raises ValueError before the first append, and for a sequence that is not there.
        """
        k_pages, v_pages = self._stored()
        self._check_sequence(b)
        table, length = self._table[b], self._lengths[b]
        return gather(k_pages, table, length), gather(v_pages, table, length)

    @property
    def k(self) -> Tensor:
        """The keys (b, n_kv_heads, longest, d) in order of position, 0 beyond a sequence's length: a copy."""
        return self._padded(0)

    @property
    def v(self) -> Tensor:
        """The values (b, n_kv_heads, longest, d_v), like `k`."""
        return self._padded(1)

    @property
    def pages(self) -> tuple[Tensor, Tensor]:
        """The memory itself, (n_pages, n_kv_heads, page_size, d) and (…, d_v): places without a token hold anything.

        With `page_table` and `lengths` it is what a kernel reads. Raises ValueError before the first append.
        """
        return self._stored()

    def axes(self) -> tuple[Tensor, ...]:
        """Tensors of the shapes of `k` and `v` that hold nothing of use and cost no memory: for checks of shapes."""
        b, longest = len(self._lengths), max(self._lengths, default=0)
        return tuple(pages[:1, :, :1].expand(b, -1, longest, -1) for pages in self._stored())

    def _padded(self, which: int) -> Tensor:
        pages = self._stored()[which]
        padded = pages.new_zeros((len(self._lengths), pages.shape[1], max(self._lengths, default=0), pages.shape[3]))
        for b, length in enumerate(self._lengths):
            padded[b, :, :length] = self.sequence(b)[which][0]
        return padded

    def _stored(self) -> tuple[Tensor, Tensor]:
        if self._pages is None:
            raise ValueError("the cache is empty: append keys and values first")
        return self._pages

    def _check_sequence(self, b: int) -> None:
        check_whole("sequence", b, 0, len(self._lengths) - 1, why=f", for {len(self._lengths)} sequences")

    @property
    def lengths(self) -> Tensor:
        """How many tokens each sequence has, (b,) int64 on the device of k; (0,) before the first append."""
        return torch.tensor(self._lengths, dtype=torch.int64, device=self._pages[0].device if self._pages else None)

    def each_length(self) -> list[int]:
        """The same as numbers: they are known here, so no device is waited for."""
        return list(self._lengths)

    @property
    def page_table(self) -> Tensor:
        """The pages of each sequence in order of position, (b, most pages) int64, −1 where it has no more."""
        width = max(map(len, self._table), default=0)
        rows = [row + [-1] * (width - len(row)) for row in self._table]
        device = self._pages[0].device if self._pages else None
        return torch.tensor(rows, dtype=torch.int64, device=device).reshape(len(rows), width)

    @property
    def n_free_pages(self) -> int:
        """How many pages no sequence has."""
        return len(self._unused)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, used or not; the table not counted."""
        return sum(x.nbytes for x in self._pages or ())

    def __repr__(self) -> str:
        """The length of each sequence (the first eight), the pages in use and in all, sizes and dtype."""
        if self._pages is None:
            return f"PagedKVCache(n_pages={None if self._grows else self.n_pages}, page_size={self.page_size}, empty)"
        k, v = self._pages
        lengths = ", ".join([*map(str, self._lengths[:8]), *["…"] * (len(self._lengths) > 8)])
        used = f"{self.n_pages - self.n_free_pages} of {self.n_pages} pages of {self.page_size}"
        sizes = f"n_kv_heads={k.shape[1]}, d={k.shape[3]}, d_v={v.shape[3]}"
        return f"PagedKVCache(lengths=[{lengths}], {used}, {sizes}, dtype={k.dtype})"

    def new_rows(self, t_q: int) -> list[int]:
        """How many of t_q query rows are real in each sequence: as in the last append, where that had t_q rows.

        For another t_q all are, the newest tokens of each sequence; raises ShapeError where the last append was ragged,
        for then it is not known which are meant.
        """
        real = [length - min(start, length) for length, start in zip(self._lengths, self._starts, strict=True)]
        if t_q == self._t_new:
            return real
        if any(n != self._t_new for n in real if self._t_new):
            raise ShapeError(
                f"q has length {t_q} (axis t) but the last append had {self._t_new} rows, of which {real} were tokens: "
                "they must be equal"
            )
        return [t_q] * len(real)

    def truncate(self, lengths: Tensor | Iterable[int]) -> None:
        """Forget each sequence's positions from lengths[b] on; pages without tokens become free.

        Raises ShapeError for another number of sequences, ValueError for a length below 0 or above the present one.
        """
        wanted = whole_numbers("lengths", lengths)
        if len(wanted) != len(self._lengths):
            raise ShapeError(
                f"lengths has {len(wanted)} sequences (axis b) but the cache has {len(self._lengths)}: must be equal"
            )
        for b, (n, present) in enumerate(zip(wanted, self._lengths, strict=True)):
            check_whole(f"lengths[{b}]", n, 0, present, why=", the present length")
        for b, n in enumerate(wanted):
            self._cut(b, n)

    def free(self, sequence: int) -> None:
        """Forget one sequence and give its pages back; its place in the batch has length 0 and can be used again.

        Raises ValueError for a sequence that is not there.
        """
        self._check_sequence(sequence)
        self._cut(sequence, 0)

    def reset(self) -> None:
        """Forget every sequence; sizes and memory stay."""
        for b in range(len(self._lengths)):
            self._cut(b, 0)

    def _cut(self, b: int, length: int) -> None:
        keep = needed(length, self.page_size)
        self._unused += self._table[b][keep:][::-1]
        self._table[b] = self._table[b][:keep]
        self._lengths[b] = length
