"""Attention forward, tile by tile: each tile of keys gives an attention of its own, and partial results are merged.

Of the keys seen so far each row keeps the largest score, `top`, the sum of exp(score − top), `total`, and the average
of their values. The same three come from the next tile by itself, and two such results make one:

    top     = max(top_a, top_b)
    total   = total_a · exp(top_a − top) + total_b · exp(top_b − top)
    average = (total_a · exp(top_a − top) · average_a + total_b · exp(top_b − top) · average_b) / total

So the scores of one tile at a time are enough, and memory beyond the result does not depend on the length. A sink is a
score that has been seen before the first key and has no value. In the end lse = top + log total.
Milakov and Gimelshein 2018; Dao et al. 2022 (algorithm 1), Dao 2023 (algorithm 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.tiled.decode import decode_forward, takes_decode
from attnbook.tiled.lanes import Stack, stacks
from attnbook.tiled.plan import Band, QueryTile, band, plan
from attnbook.tiled.prepare import SCORES, Scratch, check, four_axes, of_every_head, tile_sizes, working_dtype
from attnbook.tiled.products import all_finite, product
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
    if (options.is_causal or mask is not None) and not all_finite(out):
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


def _unfold(one: _Views, alike: Band, ahead: int) -> Iterator[_Views]:
    """The tiles of a band as lanes, from the views of a single lane: keys overlap, and nothing is copied."""
    rows, columns = alike.rows, alike.columns
    most = max(SCORES // (2 * one.q.shape[1] * rows * columns), 1) * rows
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
    q, k, v, lse = at.q, at.k, at.v, at.lse
    dtype = lse.dtype
    some = slice(tile.start, tile.stop)
    lanes, group, rows = lse[:, :, some].shape
    q_rows = q[:, :, some].flatten(1, 2).to(dtype)  # (lanes, group · rows, d)
    if len(tile.keys) == 1 and at.sink is None and not contained and scores.every_row_sees(tile):
        average, in_lse = _at_once(q_rows, k, v, tile, scores, scratch)
        lse[:, :, some] = in_lse.view(lanes, group, rows)
        at.out[:, :, some] = torch.unflatten(average, 1, (group, rows))
        return
    top, total = _start(at.sink, lse[:, :, some])  # (lanes, group · rows, 1)
    average = q.new_zeros((lanes, group * rows, v.shape[-1]), dtype=dtype)

    for keys in tile.keys:
        if scores.hides_all(tile, keys):
            continue
        k_rows = k[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d)
        v_rows = v[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d_v)
        score = scratch.take("score", (lanes, group * rows, keys.stop - keys.start))
        scores.tile(q_rows, k_rows, tile, keys, score, contained=contained)
        seen = scores.seen(tile, keys, lanes, group) if contained else None
        weight, its_top, its_total = _softmax(score, scratch)
        new_top = torch.maximum(top, its_top)
        total.mul_(top.sub_(new_top).exp_())
        its_total.mul_(its_top.sub_(new_top).exp_())
        both = total + its_total
        whole = both.clamp(min=1.0)  # at least 1 as soon as a key has been seen: no 0 / 0 before
        average.mul_(total.div_(whole)).addcmul_(product(weight, v_rows, seen), its_total.div_(whole))
        top, total = new_top, both

    lse[:, :, some] = total.log_().add_(top).view(lanes, group, rows)  # log 0 is −inf: nothing was seen
    at.out[:, :, some] = torch.unflatten(average, 1, (group, rows))


def _at_once(
    q_rows: Tensor, k: Tensor, v: Tensor, tile: QueryTile, scores: Scores, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """The average (lanes, group · rows, d_v) and lse (lanes, group · rows, 1) where one tile has all keys."""
    (keys,) = tile.keys
    k_rows, v_rows = (x[:, keys.start : keys.stop].to(q_rows.dtype) for x in (k, v))
    score = scratch.take("score", (*q_rows.shape[:2], keys.stop - keys.start))
    scores.tile(q_rows, k_rows, tile, keys, score, contained=False)
    weight = torch.softmax(score, -1, out=scratch.take("weight", score.shape))
    lse = score.amax(-1, keepdim=True).sub_(weight.amax(-1, keepdim=True).log_())
    return torch.bmm(weight, v_rows), lse


def _softmax(score: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor, Tensor]:
    """Of a tile by itself: the weights (lanes, rows, columns), and their `top` and `total` (lanes, rows, 1).

    The largest weight is exp(0) / total, which gives the total without another pass over the scores. A row of −inf has
    weights 0 and a total of 0.
    """
    top = score.amax(-1, keepdim=True)
    weight = torch.softmax(score, -1, out=scratch.take("weight", score.shape))
    total = weight.amax(-1, keepdim=True).reciprocal_()
    nothing = top == -torch.inf
    if bool(nothing.any()):
        weight.masked_fill_(nothing, 0.0)
        total.masked_fill_(nothing, 0.0)
    return weight, top.clamp_(min=torch.finfo(top.dtype).min), total


def _start(sink: Tensor | None, lse: Tensor) -> tuple[Tensor, Tensor]:
    """`top` and `total` before the first key (lanes, group · rows, 1): as if the sink had been seen, or nothing.

    The lowest finite number is the top of nothing, and not −inf, because it can be taken from itself.
    """
    lowest = torch.finfo(lse.dtype).min
    sink = torch.full_like(lse, -torch.inf) if sink is None else sink[..., None].expand(lse.shape)
    sink = sink.flatten(1, 2)[..., None]
    top = sink.clamp(min=lowest)
    return top, (sink - top).exp_()
