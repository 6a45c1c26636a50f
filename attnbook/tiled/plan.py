"""Which keys each tile of queries needs: the part of FlashAttention that is bookkeeping, as a pure function of sizes.

Queries are taken `tile_q` at a time. A causal mask and a window leave each query one stretch of keys, so a tile of
queries needs one stretch too, from the first key that its first query sees to the last that its last query sees. That
stretch is cut into tiles of `tile_k` keys; all others are never touched. Only at the two ends of the stretch must
single pairs be hidden, the *edges*:

    is_causal, window 4, t_q = t_kv = 9, tile_q = 3         1 seen   . hidden   blank: not in the plan

         k0 k1 k2 k3 k4 k5 k6 k7 k8
    q3    1  1  1  1  .  .                  queries 3–5 need keys 0–5
    q4    .  1  1  1  1  .                  keys 2–3 are seen by all three of them
    q5    .  .  1  1  1  1                  edges: keys 0–1 and keys 4–5

Dao et al. 2022 (section 3), Dao 2023 (section 3.1, causal masking).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Range = tuple[int, int]
"""Positions from the first number up to, and without, the second."""


@dataclass(frozen=True)
class KeyTile:
    """Keys `start` to `stop` − 1; `edges` are the stretches of them where some query of the tile may not see some."""

    start: int
    stop: int
    edges: tuple[Range, ...] = ()


@dataclass(frozen=True)
class QueryTile:
    """Queries `start` to `stop` − 1 and the tiles of keys that they need, from left to right; none if they see none."""

    start: int
    stop: int
    keys: tuple[KeyTile, ...]


def plan(
    t_q: int,
    t_kv: int,
    is_causal: bool,
    window: int | None,
    tile_q: int,
    tile_k: int,
    queries: Range | None = None,
) -> Iterator[QueryTile]:
    """Every tile of at most `tile_q` queries, with the tiles of at most `tile_k` keys that it visits, in order.

    `queries`: only from the first up to, and without, the second.
    """
    from_query, to_query = queries or (0, t_q)
    for start in range(from_query, to_query, tile_q):
        stop = min(start + tile_q, to_query)
        first, last = seen_by_some(start, stop, t_q, t_kv, is_causal, window)
        free = seen_by_all(start, stop, t_q, t_kv, is_causal, window)
        tiles = ((j, min(j + tile_k, last)) for j in range(first, last, tile_k))
        yield QueryTile(start, stop, tuple(KeyTile(*tile, _edges(tile, free)) for tile in tiles))


@dataclass(frozen=True)
class Band:
    """The middle of a window: queries `start` to `stop` − 1, in tiles of `rows` that look at `columns` keys each.

    A tile's last key is the one at which its last query stands. All tiles look alike, so that many of them go through
    one product:

        window 3, rows 2, columns 4          k0 k1 k2 k3 k4 k5 k6 k7
                                         q2   1  1  1  .
                                         q3   .  1  1  1
                                         q4         1  1  1  .
                                         q5         .  1  1  1
    """

    start: int
    stop: int
    rows: int
    columns: int
    window: int

    @property
    def tile(self) -> QueryTile:
        """One of its tiles, as if there were no other query and no other key."""
        free = seen_by_all(0, self.rows, self.rows, self.columns, True, self.window)
        return QueryTile(0, self.rows, (KeyTile(0, self.columns, _edges((0, self.columns), free)),))


def band(t_q: int, t_kv: int, window: int | None) -> Band | None:
    """The middle of a window, where it is long enough to have one: at least two tiles.

    Short tiles waste less work at the edges, and a number of columns that is a multiple of 16 keeps rows aligned.
    """
    if window is None:
        return None
    rows = min(max(1 << max((window - 1) // 8, 1).bit_length(), 32), 256)
    columns = -(-(window + rows - 1) // 16) * 16
    start = max(columns - rows - (t_kv - t_q), 0)
    tiles = (t_q - start) // rows
    return Band(start, start + tiles * rows, rows, columns, window) if tiles >= 2 and columns <= MOST_COLUMNS else None


MOST_COLUMNS = 2304
"""Windows longer than about this are cut into tiles of keys instead."""


def seen_by_some(start: int, stop: int, t_q: int, t_kv: int, is_causal: bool, window: int | None) -> Range:
    """The keys that at least one of the queries `start` to `stop` − 1 sees: one stretch, maybe empty."""
    ahead = t_kv - t_q  # query i stands at the position of key i + ahead
    last = min(stop + ahead, t_kv) if is_causal else t_kv
    first = max(start + ahead - window + 1, 0) if window is not None else 0
    return first, max(first, last)


def seen_by_all(start: int, stop: int, t_q: int, t_kv: int, is_causal: bool, window: int | None) -> Range:
    """The keys that every one of the queries `start` to `stop` − 1 sees: one stretch, maybe empty."""
    ahead = t_kv - t_q
    last = start + 1 + ahead if is_causal else t_kv
    first = max(stop + ahead - window, 0) if window is not None else 0
    return first, max(first, last)


def _edges(tile: Range, free: Range) -> tuple[Range, ...]:
    """The parts of a tile of keys that lie before and behind the stretch that every query sees."""
    start, stop = tile
    if free[0] >= free[1]:
        return (tile,)
    parts = ((start, min(stop, free[0])), (max(start, free[1]), stop))
    return tuple(part for part in parts if part[0] < part[1])
