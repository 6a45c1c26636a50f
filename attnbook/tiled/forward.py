"""Attention forward, tile by tile: each tile of keys gives an attention of its own, and partial results are merged.

Softmax over one tile of keys has a log-sum-exp, and two averages with their lse merge into the average over both:

    lse = log(exp(lse_a) + exp(lse_b))        out = exp(lse_a − lse) · out_a + exp(lse_b − lse) · out_b

So the scores of one tile at a time are enough, and memory beyond the result does not depend on the length. Carried from
tile to tile are the average so far and its lse; a sink is an lse that is there before the first key.
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
    so_far = _start(sink, lse[:, :, some])  # the lse of what has been seen (lanes, group · rows, 1)
    average = q.new_zeros((lanes, group * rows, v.shape[-1]), dtype=dtype)

    for keys in tile.keys:
        if scores.hides_all(tile, keys):
            continue
        k_rows = k[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d)
        v_rows = v[:, keys.start : keys.stop].to(dtype)  # (lanes, columns, d_v)
        score = scratch.take("score", (lanes, group * rows, keys.stop - keys.start))
        scores.tile(q_rows, k_rows, tile, keys, score, contained=contained)
        seen = scores.seen(tile, keys, lanes, group) if contained else None
        weight, of_tile = _softmax(score, scratch)
        both = torch.logaddexp(so_far, of_tile)
        average.mul_(so_far.sub_(both).exp_()).addcmul_(product(weight, v_rows, seen), of_tile.sub_(both).exp_())
        so_far = both

    so_far.masked_fill_(so_far == torch.finfo(dtype).min, -torch.inf)
    lse[:, :, some] = so_far.view(lanes, group, rows)
    out[:, :, some] = torch.unflatten(average, 1, (group, rows))


def _softmax(score: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor]:
    """The weights of a tile by itself (lanes, rows, columns), and their lse (lanes, rows, 1).

    The largest weight is exp(largest score − lse): that gives the lse. A row of −inf has weights 0, and for its lse the
    lowest finite number stands in: two of them can be subtracted, which −inf cannot.
    """
    top = score.amax(-1, keepdim=True)
    weight = torch.softmax(score, -1, out=scratch.take("weight", score.shape))
    lse = top - weight.amax(-1, keepdim=True).log_()
    nothing = top == -torch.inf
    if bool(nothing.any()):
        weight.masked_fill_(nothing, 0.0)
        lse.masked_fill_(nothing, torch.finfo(lse.dtype).min)
    return weight, lse


def _start(sink: Tensor | None, lse: Tensor) -> Tensor:
    """The lse before the first key (lanes, group · rows, 1): the sink, or the lowest finite number for nothing."""
    lowest = torch.finfo(lse.dtype).min
    start = torch.full_like(lse, lowest) if sink is None else sink[..., None].expand(lse.shape).clamp(min=lowest)
    return start.flatten(1, 2)[..., None]
