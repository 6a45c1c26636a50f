"""Few queries against many keys, as when a model writes one token after another: the cost is reading K and V once.

With t_q = 1 the tiles of `forward` have too few rows to be worth their bookkeeping. Here all queries are one tile, and
the query heads of a group are more rows of it; the keys are cut into *splits* of a fixed size, each attended to on its
own, and the partial results are merged at the end (Flash-Decoding: Dao et al. 2023).

    rows       group · t_q of them, for each key/value head
    keys       [ split 0 ][ split 1 ][ split 2 ][ rest ]      each: scores, weights, average
    merge      out = Σ weight of the split · its average

Two things stand out. Half precision is turned into float32 split by split, in a buffer that is used again and again
and stays in the cache: torch's own product of bfloat16 matrices is quicker, and rounds every score to 8 bits. And a
sequence is calculated over the keys that it may see, alone, whatever else is in the batch: the same calls of the same
shapes, so the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnbook.shapes import AttentionSizes
from attnbook.tiled.backward import backward_from_saved
from attnbook.tiled.lanes import Stack
from attnbook.tiled.once import Once
from attnbook.tiled.parts import Parts
from attnbook.tiled.plan import KeyTile, QueryTile, Range, seen_by_all, seen_by_some
from attnbook.tiled.prepare import Scratch, check, four_axes, of_every_head, working_dtype
from attnbook.tiled.products import all_finite
from attnbook.tiled.scores import Scores
from attnbook.tiled.uncast import uncast

BUFFER = 1 << 20
"""Numbers of K or V in a split of half precision, over all its heads: 4 MiB of float32, which stay in the cache."""
IN_PLACE = 4
"""So many times as many where nothing is copied: then a longer split only means fewer calls."""
FEWEST, MOST = 256, 8192
"""Keys of a split."""
LINE = 64
"""Bytes of a cache line, and of the widest vector register."""
ROWS, KEYS = 32, 256
"""The most rows for each key/value head, and the fewest keys, where decoding pays: measured on two cores."""


def takes_decode(sizes: AttentionSizes) -> bool:
    """Is this call for `decode`? Few rows for each key, and enough keys; with more rows the tiles are as fast."""
    group = sizes.n_heads // sizes.n_kv_heads if sizes.n_kv_heads else 0
    return 0 < group * sizes.t_q <= ROWS and sizes.t_kv >= KEYS


def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """`attnbook.tiled.attention` for few queries, by splitting the keys; any number of queries is right.

    q (b, n_heads, t_q, d), k (b, n_kv_heads, t_kv, d), v (b, n_kv_heads, t_kv, d_v) -> out (b, n_heads, t_q, d_v), in
    the dtype of q; with `return_lse` also lse (b, n_heads, t_q). Options, errors and gradients are those of
    `attnbook.tiled.attention`. The last query stands at the last key (`is_causal` with t_q > 1 checks a few tokens
    written ahead, as speculative decoding does).

    A sequence alone and in a batch, padded or not, gives the same bits. K and V are never repeated; memory beyond the
    result is one split, and a partial result for each. Dao et al. 2023 (Flash-Decoding).
    """
    options: dict[str, Any] = {"is_causal": is_causal, "window": window, "softcap": softcap, "scale": scale}
    tensors = (q, k, v, mask, alibi_slopes, sinks)
    with uncast(q):
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in tensors):
            out, lse = _Decode.apply(*tensors, options)  # type: ignore[no-untyped-call]
        else:
            out, lse = decode_forward(q, k, v, mask, alibi_slopes, sinks, **options)
    return (out, lse) if return_lse else out


def decode_forward(
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
) -> tuple[Tensor, Tensor]:
    """`decode` without a gradient -> out (b, n_heads, t_q, d_v) and lse (b, n_heads, t_q)."""
    sizes, options = check(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    dtype = working_dtype(q)
    mask, slopes = four_axes(mask), of_every_head(alibi_slopes, sizes, dtype)
    sinks = of_every_head(sinks, sizes, dtype)
    out = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v))
    lse = q.new_empty((sizes.b, sizes.n_heads, sizes.t_q), dtype=dtype)
    if lse.numel() == 0:
        return out, lse
    queries = QueryTile(0, sizes.t_q, ())
    scores = Scores(options, sizes.t_kv - sizes.t_q, q.new_empty(0, dtype=dtype))
    room = _Room(sizes, lse, half=q.dtype != dtype)
    for stack in _stacks(sizes, room.lanes):
        scores.enter(stack, mask, slopes)
        sink = None if sinks is None else stack.of_queries(sinks)
        lanes = _Lanes(stack.of_queries(q), stack.of_keys(k), stack.of_keys(v), sink)
        into = (stack.of_queries(out), stack.of_queries(lse))
        splits = list(_splits(queries, sizes, scores, room.keys))
        _attend(lanes, queries, splits, scores, room, *into, contained=False)
        may_hide = options.is_causal or mask is not None or len(splits) > 1  # or all scores of one split may be −inf
        if may_hide and not all_finite(into[0]):
            _attend(lanes, queries, splits, scores, room, *into, contained=True)
    return out, lse


class _Room:
    """How large a split is, and the buffers that every split uses again. It follows from the sizes of one sequence."""

    def __init__(self, sizes: AttentionSizes, like: Tensor, half: bool) -> None:
        rows, width = sizes.n_heads // sizes.n_kv_heads * sizes.t_q, max(sizes.head_dim, sizes.d_v, 1)
        numbers = BUFFER if half else IN_PLACE * BUFFER
        self.lanes = max(min(sizes.n_kv_heads, numbers // (FEWEST * width)), 1)
        self.keys = min(max(numbers // (self.lanes * max(width, rows)), FEWEST), MOST)
        self.dtype = like.dtype
        self.scratch = Scratch(like)

    def in_place(self, x: Tensor) -> bool:
        """Is a split of K or V (lanes, keys, d) used where it lies?

        A product rounds otherwise where rows begin elsewhere in a cache line, so only rows that all begin at its start
        are: another place in memory, alone or in a batch, then changes no bit.
        """
        aligned = all(n * x.element_size() % LINE == 0 for n in x.stride()[:-1]) and x.data_ptr() % LINE == 0
        return x.dtype == self.dtype and x.stride(-1) == 1 and aligned

    def at_hand(self, x: Tensor) -> Tensor:
        """A split of K or V in the working dtype: itself, or a copy (the one before it is gone)."""
        return x if self.in_place(x) else self.scratch.take("split", x.shape).copy_(x)


class _Lanes(NamedTuple):
    """q (lanes, group, t_q, d), k (lanes, t_kv, d), v (lanes, t_kv, d_v), sink (lanes, group)."""

    q: Tensor
    k: Tensor
    v: Tensor
    sink: Tensor | None


def _stacks(sizes: AttentionSizes, lanes: int) -> Iterator[Stack]:
    """Some heads of one sequence at a time: never two sequences, so that none changes how another is calculated."""
    group = sizes.n_heads // sizes.n_kv_heads
    for one in range(sizes.b):
        for start in range(0, sizes.n_kv_heads, lanes):
            yield Stack(slice(one, one + 1), slice(start, start + lanes), sizes.n_kv_heads, group)


def _splits(queries: QueryTile, sizes: AttentionSizes, scores: Scores, keys: int) -> Iterator[KeyTile]:
    """The splits that some query of these lanes sees, cut from the first key that the mask and the window leave."""
    of_options = (0, sizes.t_q, sizes.t_q, sizes.t_kv, scores.options.is_causal, scores.options.window)
    first, last = seen_by_some(*of_options)
    free = seen_by_all(*of_options)
    if scores.mask is not None:
        first, last = _ends(scores.may_attend(queries, KeyTile(0, sizes.t_kv)), first, last)
    for start in range(first, last, keys):
        stop = min(start + keys, last)
        edges = () if free[0] <= start and stop <= free[1] else ((start, stop),)
        tile = KeyTile(start, stop, edges)
        if not scores.hides_all(queries, tile):
            yield tile


def _ends(may_attend: Tensor, first: int, last: int) -> Range:
    """The stretch from the first to the last key of `first` … `last` − 1 that the mask shows to some query."""
    shown = may_attend.flatten(0, -2).any(0)  # (t_kv,), or (1,) for all keys alike
    if len(shown) == 1:
        return (first, last) if bool(shown) else (first, first)
    where = shown[first:last].nonzero()
    return (first + int(where[0]), first + int(where[-1]) + 1) if len(where) else (first, first)


def _attend(
    lanes: _Lanes,
    queries: QueryTile,
    splits: list[KeyTile],
    scores: Scores,
    room: _Room,
    out: Tensor,
    lse: Tensor,
    *,
    contained: bool,
) -> None:
    """Write out (lanes, group, t_q, d_v) and lse (lanes, group, t_q) of these lanes: split by split, then merged."""
    n, group, t_q = lse.shape
    # The group's heads are more rows, (lanes, group · t_q, d); a copy, so that its place in memory is always alike.
    q = room.scratch.take("q", (n, group * t_q, lanes.q.shape[-1])).copy_(lanes.q.flatten(1, 2))
    sink = lanes.sink
    if sink is not None:
        sink = sink[:, :, None].expand(n, group, t_q).reshape(n, group * t_q, 1)
    parts = Parts(room.scratch, (n, group * t_q, lanes.v.shape[-1]), sink, len(splits))
    for keys in splits:
        here = slice(keys.start, keys.stop)
        score = room.scratch.take("score", (n, group * t_q, keys.stop - keys.start))
        k = lanes.k[:, here]
        by_key = room.scratch.take("by key", score.mT.shape) if room.in_place(k) else None
        scores.tile(q, room.at_hand(k), queries, keys, score, contained=contained, by_key=by_key)
        seen = scores.seen(queries, keys, n, group) if contained else None
        certain = not contained and scores.every_row_sees(queries, keys)
        parts.add(score, room.at_hand(lanes.v[:, here]), certain=certain, seen=seen)
    average, in_lse = parts.whole()
    out[:] = average.view(out.shape)
    lse[:] = in_lse.view(lse.shape)


class _Decode(torch.autograd.Function):
    """Forward by splits; backward in the tiles of all attention, from out and lse."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        *tensors, options = inputs
        out, lse = decode_forward(*tensors, **options)
        ctx.save_for_backward(*tensors, out, lse)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, out, lse = ctx.saved_tensors
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        needs = dict(zip(("needs_mask", "needs_alibi", "needs_sinks"), ctx.needs_input_grad[3:6], strict=True))
        calculate = partial(backward_from_saved, **ctx.options, **needs)
        grads = Once.apply("decode", calculate, grad_out, grad_lse, *tensors, out, lse)  # type: ignore[no-untyped-call]
        return *grads, None
