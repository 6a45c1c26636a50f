"""Decoding against keys and values in pages: sequences of different lengths, in whatever pages the table says.

    page_size 4      page_table [5, 2]      key 6 is in page 2, at place 2

What stands out: nothing outside a sequence's own keys is read. The free places of its last page may hold anything, NaN
too, and so may the table's entries behind that page. Kwon et al. 2023 (PagedAttention).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.errors import DTypeError, ShapeError
from attnbook.kernels.decode.launch import Pages, config_of, run
from attnbook.kernels.flash.call import dense_call
from attnbook.shapes import check_axes


def paged_forward(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    is_causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    new_rows: Tensor | None = None,
    longest: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of the newest t_q tokens of each sequence to all its keys, which lie in pages.

    q (b, n_heads, t_q, d), k_pages (n_pages, n_kv_heads, page_size, d), v_pages (n_pages, n_kv_heads, page_size, d_v);
    whole numbers: page_table (b, m), the pages of each sequence in order of position, anything where it needs none, and
    lengths (b,), how many keys each has, at most m · page_size -> out (b, n_heads, t_q, d_v) in the dtype of q, lse
    (b, n_heads, t_q) float32. A sequence of length 0 gives 0 and −inf (with a sink: the sink).

    - `mask` broadcasts to (b, n_heads, t_q, greatest length); its columns count positions.
    - `new_rows` (b,), whole numbers: how many of the t_q rows each sequence really has, the first ones; those beyond
      give 0 and −inf. Without it all are real.
    - `longest`: the greatest length, where the table, lengths and new rows are known to be right, as when each layer of
      a model is given the same ones; or where sequences share pages. Without it their values are checked, which waits
      for the device if they are on it.

    A sequence gives the same bits alone and in a batch. Without a gradient. Raises what `decode_forward` raises, and
    ShapeError for a page number outside the memory, a page that is given to two sequences, a length beyond the pages of
    the table, or new rows beyond t_q.
    """
    _check_axes(q, k_pages, v_pages, page_table, lengths, new_rows)
    _, n_kv_heads, page_size, _ = k_pages.shape
    if longest is None:
        longest = check_pages(page_table, lengths, n_pages=len(k_pages), page_size=page_size)
        _check_rows(new_rows, q.shape[2])
    # Keys and values of these sizes that take no memory: to be checked as dense ones are.
    k, v = (pages.new_empty(()).expand(len(q), n_kv_heads, longest, pages.shape[3]) for pages in (k_pages, v_pages))
    call = dense_call(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    table, own_lengths = (x.to(q.device).contiguous() for x in (page_table, lengths))
    pages = Pages(page_size, table, own_lengths, None if new_rows is None else new_rows.to(q.device).contiguous())
    return run(
        call, k_pages, v_pages, pages, parts=most_parts(longest, q.shape[2], window, config_of(call, pages).split)
    )


def most_parts(longest: int, t_q: int, window: int | None, split: int) -> int:
    """How many splits the queries of one sequence look into at most, wherever a window begins."""
    parts = -(-longest // split)
    return parts if window is None else min(parts, (window + max(t_q, 1) - 1 + split - 2) // split + 1)


def check_pages(page_table: Tensor, lengths: Tensor, *, n_pages: int, page_size: int) -> int:
    """The greatest length; raises ShapeError unless each page that a sequence needs is there, and its alone.

    page_table (b, m), lengths (b,). Their values are read, which waits for the device if they are on it.
    """
    table, own, m = page_table.cpu().long(), lengths.cpu().long(), page_table.shape[1]
    for b, length in enumerate(own.tolist()):
        if not 0 <= length <= m * page_size:
            raise ShapeError(f"lengths[{b}] is {length}: expected 0 to {m * page_size}, {m} pages of {page_size}")
    place = (torch.arange(m) * page_size < own[:, None]).nonzero()  # (pages in use, 2): sequence, number in its row
    page = table[place[:, 0], place[:, 1]]
    number = torch.arange(len(page))
    for n in ((page < 0) | (page >= n_pages)).nonzero()[:1, 0].tolist():
        raise ShapeError(f"{_entry(place, n)} is {int(page[n])}: expected 0 to {n_pages - 1}, for {n_pages} pages")
    owner = torch.full((n_pages,), len(page)).scatter_reduce(0, page, number, "amin")  # the first to have it
    for n in (owner[page] != number).nonzero()[:1, 0].tolist():
        first = _entry(place, int(owner[page[n]]))
        raise ShapeError(f"{_entry(place, n)} is {int(page[n])}, as is {first}: a page has one owner")
    return int(own.max()) if len(own) else 0


def _entry(place: Tensor, n: int) -> str:
    b, i = place[n].tolist()
    return f"page_table[{b}, {i}]"


def _check_axes(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, new_rows: Tensor | None
) -> None:
    """Raises TypeError, ShapeError or DTypeError unless the axes of pages and tables fit; others are checked later."""
    pages, table = {"k_pages": k_pages, "v_pages": v_pages}, {"page_table": page_table, "lengths": lengths}
    table |= {} if new_rows is None else {"new_rows": new_rows}
    for name, x in ({"q": q} | pages | table).items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__module__}.{type(x).__name__}: expected a torch.Tensor")
    check_axes("q", q, "b h t d")
    for name, x in pages.items():
        if x.ndim != 4:
            raise ShapeError(f"{name} has {x.ndim} axes {tuple(x.shape)}: expected 4, (n_pages, h, page_size, d)")
    for axis, words in enumerate(("{} pages (axis n_pages)", "{} heads (axis h)", "page_size {}")):
        sizes = [words.format(x.shape[axis]) for x in (v_pages, k_pages)]
        if sizes[0] != sizes[1]:
            raise ShapeError(f"v_pages has {sizes[0]} but k_pages {sizes[1]}: they must be equal")
    if k_pages.shape[2] == 0:
        raise ShapeError("k_pages has page_size 0: expected at least 1")
    for name, x in table.items():
        axes = "(b, pages)" if name == "page_table" else "(b,)"
        if x.ndim != axes.count(",") + (name == "page_table"):
            raise ShapeError(f"{name} has {x.ndim} axes {tuple(x.shape)}: expected {axes}")
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise DTypeError(f"{name} has dtype {x.dtype}: expected whole numbers")
        if len(x) != len(q):
            raise ShapeError(f"{name} has {len(x)} sequences (axis b) but q has {len(q)}: they must be equal")


def _check_rows(new_rows: Tensor | None, t_q: int) -> None:
    for b, n in enumerate([] if new_rows is None else new_rows.tolist()):
        if not 0 <= n <= t_q:
            raise ShapeError(f"new_rows[{b}] is {n}: expected 0 to {t_q}, the length of q (axis t)")
