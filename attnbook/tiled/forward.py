"""Attention forward, tile by tile: each tile of keys gives an attention of its own, and the parts are merged.

So the scores of one tile at a time are enough, and memory beyond the result does not depend on the length. How parts
are merged is told in `parts`, and which tiles there are in `plan`.
Milakov and Gimelshein 2018; Dao et al. 2022 (algorithm 1), Dao 2023 (algorithm 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.tiled.decode import decode_forward, takes_decode
from attnbook.tiled.lanes import Stack, stacks
from attnbook.tiled.parts import Parts
from attnbook.tiled.plan import Band, QueryTile, band, plan
from attnbook.tiled.prepare import Scratch, check, four_axes, of_every_head, tile_sizes, working_dtype
from attnbook.tiled.products import all_finite
from attnbook.tiled.scores import Scores


def attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    tile_q: int | None = None,
    tile_k: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`attention` without a gradient -> out (b, n_heads, t_q, d_v) and lse (b, n_heads, t_q).

    Shapes, options and errors are those of `attnbook.tiled.attention`. Few queries against
    many keys are split as in `decode`.
    """
    sizes, options = check(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    suits = tile_q is None and tile_k is None
    if suits and takes_decode(sizes):
        return decode_forward(
            q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
        )
    tiles = tile_sizes(sizes, options.window, tile_q, tile_k)
    dtype = working_dtype(q)
    mask, slopes = four_axes(mask), of_every_head(alibi_slopes, sizes, dtype)
    sinks = of_every_head(sinks, sizes, dtype)
    out = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v))
    lse = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q), dtype=dtype)
    scores, scratch = Scores(options, sizes.t_kv - sizes.t_q, lse), Scratch(lse)
    middle = band(sizes.t_q, sizes.t_kv, options.window) if suits and mask is None else None

    def calculate(contained: bool) -> None:
        alike = None if contained else middle
        parts = [(0, sizes.t_q)] if alike is None else [(0, alike.start), (alike.stop, sizes.t_q)]
        for stack in stacks(sizes, tiles.lanes):
            scores.enter(stack, mask, slopes)
            views = _Views.of(stack, q, k, v, sinks, out, lse)
            for part in parts:
                for tile in plan(sizes.t_q, sizes.t_kv, options.is_causal, options.window, tiles.q, tiles.k, part):
                    _attend(tile, views, scores, scratch, contained)
        if alike is not None:
            for stack in stacks(sizes, 1):
                views = _Views.of(stack, q, k, v, sinks, out, lse)
                in_band = Scores(options, alike.columns - alike.rows, lse)
                in_band.enter(stack, None, slopes)
                for many in _unfold(views, alike, sizes.t_kv - sizes.t_q):
                    _attend(alike.tile, many, in_band, scratch, contained)

    calculate(contained=False)
    may_hide = options.is_causal or mask is not None or sizes.t_kv > tiles.k  # or one tile's scores may all be −inf
    if may_hide and not all_finite(out):
        calculate(contained=True)
    return out, lse


@dataclass(frozen=True)
class _Views:
    """What the lanes of one stack read and write."""

    q: Tensor  # (lanes, group, t_q, d)
    k: Tensor  # (lanes, t_kv, d)
    v: Tensor  # (lanes, t_kv, d_v)
    sink: Tensor | None  # (lanes, group)
    out: Tensor  # (lanes, group, t_q, d_v)
    lse: Tensor  # (lanes, group, t_q)

    @staticmethod
    def of(stack: Stack, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor, lse: Tensor) -> _Views:
        sink = None if sinks is None else stack.of_queries(sinks)
        of_queries, of_keys = stack.of_queries, stack.of_keys
        return _Views(of_queries(q), of_keys(k), of_keys(v), sink, of_queries(out), of_queries(lse))

    def place(self, some: slice) -> Tensor | None:
        """Where out has these queries as the rows of one product (lanes, rows, d_v), if they lie side by side there."""
        rows = self.out[:, 0, some]
        suits = self.out.shape[1] == 1 and self.out.dtype == self.lse.dtype and rows.is_contiguous()
        return rows if suits else None


SCORES_IN_BAND = 1 << 21
"""How many scores of a band are calculated at once, about: products of many small tiles gain from twice `SCORES`."""


def _unfold(one: _Views, alike: Band, ahead: int) -> Iterator[_Views]:
    """The tiles of a band as lanes, from the views of a single lane: keys overlap, and nothing is copied."""
    rows, columns = alike.rows, alike.columns
    most = max(SCORES_IN_BAND // (one.q.shape[1] * rows * columns), 1) * rows
    for start in range(alike.start, alike.stop, most):
        stop = min(start + most, alike.stop)
        stretch = slice(start + ahead + rows - columns, stop + ahead)

        def of_queries(x: Tensor, start: int = start, stop: int = stop) -> Tensor:  # (1, group, t_q, …)
            return torch.unflatten(x[0, :, start:stop], 1, (-1, rows)).transpose(0, 1)  # (tiles, group, rows, …)

        k, v = (x[0, stretch].to(one.lse.dtype).unfold(0, columns, rows).mT for x in (one.k, one.v))
        sink = None if one.sink is None else one.sink.expand(len(k), -1)
        yield _Views(of_queries(one.q), k, v, sink, of_queries(one.out), of_queries(one.lse))


def _attend(tile: QueryTile, at: _Views, scores: Scores, scratch: Scratch, contained: bool) -> None:
    """Write out and lse of one tile of queries."""
    dtype = at.lse.dtype
    some = slice(tile.start, tile.stop)
    lanes, group, rows = at.lse[:, :, some].shape
    q_rows = at.q[:, :, some].flatten(1, 2).to(dtype)  # (lanes, group · rows, d)
    sink = None if at.sink is None else at.sink[..., None].expand(lanes, group, rows).reshape(lanes, group * rows, 1)
    place = at.place(some) if len(tile.keys) == 1 and sink is None else None
    parts = Parts(scratch, (lanes, group * rows, at.v.shape[-1]), sink, len(tile.keys), place)
    for keys in tile.keys:
        if scores.hides_all(tile, keys):
            continue
        k_rows = at.k[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d)
        v_rows = at.v[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d_v)
        score = scratch.take("score", (lanes, group * rows, keys.stop - keys.start))
        scores.tile(q_rows, k_rows, tile, keys, score, contained=contained)
        seen = scores.seen(tile, keys, lanes, group) if contained else None
        parts.add(score, v_rows, certain=not contained and scores.every_row_sees(tile, keys), seen=seen)
    average, lse = parts.whole()
    if place is None:
        at.out[:, :, some] = torch.unflatten(average, 1, (group, rows))
    at.lse[:, :, some] = lse.view(lanes, group, rows)
