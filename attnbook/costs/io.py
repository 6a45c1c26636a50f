"""The two-memory model: how many numbers attention moves between a large slow memory and a small fast one.

Calculation happens in fast memory alone; what does not fit is read from slow memory and written back. Counted for each
head apart, in numbers (elements) and not in bytes, as loads and stores of whole tiles:

    standard    read Q, K            write S        tiled    for each tile of queries:
                read S               write P                     read its rows of Q
                read P, V            write O                     for each tile of keys that one of them may see:
                                                                     read its rows of K and V
                                                                 write its rows of O and of lse

Dao et al. 2022 (arXiv:2205.14135), theorem 2: standard attention moves Θ(n·d + n²) numbers, FlashAttention Θ(n²·d²/M)
with a fast memory of M numbers. The order of loops here is FlashAttention-2's (Dao 2023), with queries outside; with
`order="keys"` it is that of the first paper's algorithm 1, which first writes zeros, then reads and writes O and two
statistics a row again for every tile of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from attnbook.costs.flops import check_size, check_sizes, check_window


@dataclass(frozen=True)
class AttentionIO:
    """Numbers moved by one attention forward, all heads together.

    `standard_reads`, `standard_writes`: three passes with S and P in slow memory. `tiled_reads`, `tiled_writes`: tile
    by tile. `tile_q`, `tile_k`: rows of a tile of queries and of keys. `tiles`: pairs of tiles visited, of
    `tiles_in_all`. `fast_memory`: numbers that the tiles need at once (q, k, v, scores, out, two statistics a row).
    """

    standard_reads: int
    standard_writes: int
    tiled_reads: int
    tiled_writes: int
    tile_q: int
    tile_k: int
    tiles: int
    tiles_in_all: int
    fast_memory: int

    @property
    def standard(self) -> int:
        """Reads and writes of standard attention."""
        return self.standard_reads + self.standard_writes

    @property
    def tiled(self) -> int:
        """Reads and writes with tiles."""
        return self.tiled_reads + self.tiled_writes


def attention_io(
    t_q: int,
    t_kv: int | None = None,
    *,
    head_dim: int,
    d_v: int | None = None,
    n_heads: int = 1,
    b: int = 1,
    is_causal: bool = False,
    window: int | None = None,
    tile_q: int | None = None,
    tile_k: int | None = None,
    fast_memory: int | None = None,
    order: Literal["queries", "keys"] = "queries",
) -> AttentionIO:
    """Numbers read from and written to slow memory by standard attention and by attention in tiles.

    q (b, n_heads, t_q, head_dim) against t_kv keys and values (t_kv = t_q and d_v = head_dim where not given). Every
    query head loads its own keys and values: what grouped heads could share is not credited. A tile at the end counts
    the rows that it has. Standard attention calculates, stores and reads every score, hidden ones too.

    Give either both tile lengths, or `fast_memory` = M (numbers), from which `tile_lengths` chooses them. Without a
    mask the count is, for each head and with `order="queries"`,

        t_q·d + ⌈t_q / tile_q⌉ · t_kv·(d + d_v) + t_q·(d_v + 1)

    Raises ValueError for sizes below 0, tiles below 1, a window below 1 or without `is_causal`, both or neither of
    tile lengths and fast_memory, and an unknown order.
    """
    t_kv = t_q if t_kv is None else t_kv
    d_v = head_dim if d_v is None else d_v
    check_sizes(t_q=t_q, t_kv=t_kv, head_dim=head_dim, d_v=d_v, n_heads=n_heads, b=b)
    check_window(is_causal, window)
    if order not in ("queries", "keys"):
        raise ValueError(f"order: expected 'queries' or 'keys', got {order!r}")
    tile_q, tile_k = _chosen(tile_q, tile_k, fast_memory, head_dim, d_v)
    heads, scores = b * n_heads, t_q * t_kv
    visits = list(_visits(t_q, t_kv, tile_q, tile_k, is_causal, window))
    tiles = [-(-(last - first) // tile_k) for _, first, last in visits]
    if order == "queries":
        reads = t_q * head_dim + sum(last - first for _, first, last in visits) * (head_dim + d_v)
        writes = t_q * (d_v + 1)
    else:
        key_rows = visits[-1][2] - visits[0][1] if visits else 0
        query_rows = sum(rows * count for (rows, _, _), count in zip(visits, tiles, strict=True))
        reads = key_rows * (head_dim + d_v) + query_rows * (head_dim + d_v + 2)
        writes = (t_q + query_rows) * (d_v + 2)
    return AttentionIO(
        standard_reads=heads * ((t_q + t_kv) * head_dim + 2 * scores + t_kv * d_v),
        standard_writes=heads * (2 * scores + t_q * d_v),
        tiled_reads=heads * reads,
        tiled_writes=heads * writes,
        tile_q=tile_q,
        tile_k=tile_k,
        tiles=heads * sum(tiles),
        tiles_in_all=heads * -(-t_q // tile_q) * -(-t_kv // tile_k),
        fast_memory=needed(tile_q, tile_k, head_dim, d_v),
    )


def needed(tile_q: int, tile_k: int, head_dim: int, d_v: int) -> int:
    """Numbers of fast memory that one step holds: its q, k, v, scores and out, and a maximum and a sum a query."""
    return tile_q * (head_dim + d_v + 2) + tile_k * (head_dim + d_v) + tile_q * tile_k


def tile_lengths(fast_memory: int, head_dim: int, d_v: int | None = None) -> tuple[int, int]:
    """Rows of a tile of queries and of keys for a fast memory of M numbers: (min(⌈M / 4d⌉, d), ⌈M / 4d⌉).

    Line 1 of algorithm 1 (Dao et al. 2022), with d the larger of head_dim and d_v. It keeps q, k, v and out within
    about M; the scores come on top: `AttentionIO.fast_memory` counts them too. Raises ValueError for an M or a d
    below 1.
    """
    check_size("fast_memory", fast_memory, 1)
    check_sizes(head_dim=head_dim, d_v=0 if d_v is None else d_v)
    d = max(head_dim, d_v or 0)
    check_size("head_dim", d, 1)
    keys = -(-fast_memory // (4 * d))
    return min(keys, d), keys


def _chosen(
    tile_q: int | None, tile_k: int | None, fast_memory: int | None, head_dim: int, d_v: int
) -> tuple[int, int]:
    given = [name for name, tile in (("tile_q", tile_q), ("tile_k", tile_k)) if tile is not None]
    if fast_memory is not None:
        if given:
            raise ValueError(f"fast_memory: expected no tile lengths with it, got {' and '.join(given)}")
        return tile_lengths(fast_memory, head_dim, d_v)
    if tile_q is None or tile_k is None:
        raise ValueError(f"tile_q and tile_k: expected both, or fast_memory, got {given[0] if given else 'neither'}")
    for name, tile in (("tile_q", tile_q), ("tile_k", tile_k)):
        check_size(name, tile, 1)
    return tile_q, tile_k


def _visits(
    t_q: int, t_kv: int, tile_q: int, tile_k: int, is_causal: bool, window: int | None
) -> Iterator[tuple[int, int, int]]:
    """For each tile of queries that sees any key: its rows, the first key it loads, and the key after the last.

    Both ends move on with the queries and neighbours touch, so what all of them load together has no gap.
    """
    for first in range(0, t_q, tile_q):
        last = min(first + tile_q, t_q)
        low, high = 0, t_kv  # the keys that some query of the tile may see
        if is_causal:
            high = max(last + t_kv - t_q, 0)
            low = max(first + t_kv - t_q - window + 1, 0) if window is not None else 0
        if low < high:
            yield last - first, low // tile_k * tile_k, min(-(-high // tile_k) * tile_k, t_kv)
