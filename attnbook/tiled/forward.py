"""Attention forward, tile by tile: the scores of one tile at a time, and of each row two running numbers.

For every row, `top` is the largest score so far and `total` the sum of exp(score − top); `average` is the sum of
exp(score − top) · v, not yet divided. A tile with a larger score shrinks all three by exp(old top − new top). Memory
beyond the result is one tile, whatever the length. Dao et al. 2022 (algorithm 1), Dao 2023 (algorithm 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.tiled.lanes import stacks
from attnbook.tiled.plan import QueryTile, plan
from attnbook.tiled.prepare import check, four_axes, of_every_head, tile_sizes, working_dtype
from attnbook.tiled.products import add_product, all_finite
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

    Shapes, options and errors are those of `attnbook.tiled.attention`.
    """
    sizes, options = check(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    tile_q, tile_k, lanes = tile_sizes(sizes, options.window, tile_q, tile_k)
    dtype = working_dtype(q)
    mask, slopes = four_axes(mask), of_every_head(alibi_slopes, sizes, dtype)
    sinks = of_every_head(sinks, sizes, dtype)
    out = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v))
    lse = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q), dtype=dtype)
    scores = Scores(options, sizes.t_kv - sizes.t_q, q.new_empty(0, dtype=dtype))

    def calculate(contained: bool) -> None:
        for stack in stacks(sizes, lanes):
            scores.enter(stack, mask, slopes)
            sink = None if sinks is None else stack.of_queries(sinks)
            views = (stack.of_queries(q), stack.of_keys(k), stack.of_keys(v))
            into = (stack.of_queries(out), stack.of_queries(lse))
            for tile in plan(
                sizes.t_q,
                sizes.t_kv,
                is_causal=options.is_causal,
                window=options.window,
                tile_q=tile_q,
                tile_k=tile_k,
            ):
                _attend(tile, *views, sink, *into, scores, contained)

    calculate(contained=False)
    if (options.is_causal or mask is not None) and not all_finite(out):
        calculate(contained=True)
    return out, lse


def _attend(
    tile: QueryTile,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None,
    out: Tensor,
    lse: Tensor,
    scores: Scores,
    contained: bool,
) -> None:
    """Write out and lse of one tile of queries.

    q (lanes, group, t_q, d), k (lanes, t_kv, d), v (lanes, t_kv, d_v), sink (lanes, group)
    -> out (lanes, group, t_q, d_v), lse (lanes, group, t_q).
    """
    lanes, group = q.shape[:2]
    rows = tile.stop - tile.start
    dtype = lse.dtype
    q_rows = q[:, :, tile.start : tile.stop].flatten(1, 2).to(dtype)  # (lanes, group · rows, d)
    top, total = _start(sink, lanes, group, rows, dtype, q)  # (lanes, group · rows, 1)
    average = q.new_zeros((lanes, group * rows, v.shape[-1]), dtype=dtype)

    for keys in tile.keys:
        if scores.hides_all(tile, keys):
            continue
        k_rows = k[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d)
        v_rows = v[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d_v)
        buffer = q.new_empty((lanes, group * rows, keys.stop - keys.start), dtype=dtype)
        score, _ = scores.tile(q_rows, k_rows, tile, keys, buffer)
        new_top = torch.maximum(top, score.amax(-1, keepdim=True))
        shrink = top.sub_(new_top).exp_()
        weight = score.sub_(new_top).exp_()  # in place: the scores are gone
        total = total.mul_(shrink).add_(weight.sum(-1, keepdim=True))
        seen = scores.seen(tile, keys, lanes, group) if contained else None
        add_product(average.mul_(shrink), weight, v_rows, seen)
        top = new_top

    lse[:, :, tile.start : tile.stop] = total.log().add_(top).view(lanes, group, rows)
    average.div_(total.masked_fill_(total == 0, 1.0))  # a row that saw nothing: 0 / 1
    out[:, :, tile.start : tile.stop] = torch.unflatten(average, 1, (group, rows))


def _start(
    sink: Tensor | None, lanes: int, group: int, rows: int, dtype: torch.dtype, like: Tensor
) -> tuple[Tensor, Tensor]:
    """`top` and `total` before the first key: as if the sink had been seen, or nothing.

    Where nothing has been seen, top is the lowest finite number and not −inf, so that no −inf is ever taken from −inf:
    exp(−inf − lowest) is 0, and the lse of such a row lowest + log 0 = −inf.
    """
    lowest = torch.finfo(dtype).min
    if sink is None:
        top = like.new_full((lanes, group * rows, 1), lowest, dtype=dtype)
        return top, torch.zeros_like(top)
    sink = sink[:, :, None].expand(lanes, group, rows).reshape(lanes, group * rows, 1)
    top = sink.clamp(min=lowest)
    return top, (sink - top).exp_()
