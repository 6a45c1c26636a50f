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

import torch
from torch import Tensor

from attnbook.tiled.lanes import stacks
from attnbook.tiled.plan import QueryTile, plan
from attnbook.tiled.prepare import Scratch, check, four_axes, of_every_head, tile_sizes, working_dtype
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

    Shapes, options and errors are those of `attnbook.tiled.attention`.
    """
    sizes, options = check(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    tiles = tile_sizes(sizes, options.window, tile_q, tile_k)
    dtype = working_dtype(q)
    mask, slopes = four_axes(mask), of_every_head(alibi_slopes, sizes, dtype)
    sinks = of_every_head(sinks, sizes, dtype)
    out = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v))
    lse = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q), dtype=dtype)
    scores, scratch = Scores(options, sizes.t_kv - sizes.t_q, lse), Scratch(lse)

    def calculate(contained: bool) -> None:
        for stack in stacks(sizes, tiles.lanes):
            scores.enter(stack, mask, slopes)
            sink = None if sinks is None else stack.of_queries(sinks)
            views = (stack.of_queries(q), stack.of_keys(k), stack.of_keys(v))
            into = (stack.of_queries(out), stack.of_queries(lse))
            for tile in plan(sizes.t_q, sizes.t_kv, options.is_causal, options.window, tiles.q, tiles.k):
                _attend(tile, *views, sink, *into, scores, scratch, contained)

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
    scratch: Scratch,
    contained: bool,
) -> None:
    """Write out and lse of one tile of queries.

    q (lanes, group, t_q, d), k (lanes, t_kv, d), v (lanes, t_kv, d_v), sink (lanes, group)
    -> out (lanes, group, t_q, d_v), lse (lanes, group, t_q).
    """
    dtype = lse.dtype
    some = slice(tile.start, tile.stop)
    lanes, group, rows = lse[:, :, some].shape
    q_rows = q[:, :, some].flatten(1, 2).to(dtype)  # (lanes, group · rows, d)
    top, total = _start(sink, lse[:, :, some])  # (lanes, group · rows, 1)
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
    out[:, :, some] = torch.unflatten(average, 1, (group, rows))


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
