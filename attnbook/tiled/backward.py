"""Attention backward by recomputation: the weights of a tile are calculated again from q, k and the lse of forward.

Forward keeps out and lse, nothing that grows with t_q · t_kv. With p = exp(score − lse) the exact weights are back, and
for each row one number stands for the whole softmax: delta = Σ d_out · out − d_lse. Then, per tile,

    d_v     += pᵀ d_out
    d_score  = p · (d_out vᵀ − delta)         and through softcap · (1 − tanh²)
    d_q     += scale · d_score k
    d_k     += scale · d_scoreᵀ q

Dao et al. 2022 (algorithm 4), Dao 2023 (algorithm 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.tiled.lanes import Stack, stacks, tile_of
from attnbook.tiled.plan import KeyTile, QueryTile, plan
from attnbook.tiled.prepare import Scratch, check, four_axes, of_every_head, tile_sizes, working_dtype
from attnbook.tiled.products import all_finite, product
from attnbook.tiled.scores import Scores


@dataclass(frozen=True)
class Gradients:
    """Where gradients are summed, in the working dtype: of the whole call, or the views that belong to one stack."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    slopes: Tensor | None
    sinks: Tensor | None

    def of(self, stack: Stack) -> Gradients:
        """The views of one stack of lanes: adding to them adds to the whole."""
        mask, slopes, sinks = (None if x is None else stack.of_queries(x) for x in (self.mask, self.slopes, self.sinks))
        return Gradients(stack.of_queries(self.q), stack.of_keys(self.k), stack.of_keys(self.v), mask, slopes, sinks)


@dataclass(frozen=True)
class Saved:
    """What forward was given and gave, for one stack: q, out, d_out (lanes, group, t_q, …), lse (lanes, group, t_q)."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor
    d_out: Tensor
    d_lse: Tensor | None
    sinks: Tensor | None


def attention_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    needs_mask: bool = False,
    needs_alibi: bool = False,
    needs_sinks: bool = False,
    tile_q: int | None = None,
    tile_k: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of q, k and v, and of the mask, the slopes and the sinks where asked for (else None).

    `out` and `lse` are what `attention_forward` gave for the same inputs; `grad_out` and `grad_lse` have their shapes,
    with any strides, also 0. Each gradient has the shape and dtype of its input. Inputs are checked, and errors raised,
    as by `attention_forward`; what it gave is not checked.
    """
    sizes, options = check(
        q, k, v, mask, alibi_slopes, sinks, is_causal=is_causal, window=window, softcap=softcap, scale=scale
    )
    tiles = tile_sizes(sizes, options.window, tile_q, tile_k)
    dtype = working_dtype(q)
    mask4, slopes = four_axes(mask), of_every_head(alibi_slopes, sizes, dtype)
    sinks2 = of_every_head(sinks, sizes, dtype)
    scores, scratch = Scores(options, sizes.t_kv - sizes.t_q, lse), Scratch(lse)
    of_heads = (sizes.b, sizes.n_heads)

    def calculate(contained: bool) -> Gradients:
        d_q, d_k, d_v = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (q, k, v))
        d_mask = q.new_zeros(mask4.shape, dtype=dtype) if needs_mask and mask4 is not None else None
        d_slopes = q.new_zeros(of_heads, dtype=dtype) if needs_alibi and slopes is not None else None
        d_sinks = q.new_zeros(of_heads, dtype=dtype) if needs_sinks and sinks is not None else None
        whole = Gradients(d_q, d_k, d_v, d_mask, d_slopes, d_sinks)
        for stack in stacks(sizes, tiles.lanes):
            scores.enter(stack, mask4, slopes)
            saved = Saved(
                stack.of_queries(q),
                stack.of_keys(k),
                stack.of_keys(v),
                stack.of_queries(out),
                stack.of_queries(lse),
                stack.of_queries(grad_out),
                None if grad_lse is None else stack.of_queries(grad_lse),
                None if sinks2 is None else stack.of_queries(sinks2),
            )
            into = whole.of(stack)
            for tile in plan(sizes.t_q, sizes.t_kv, options.is_causal, options.window, tiles.q, tiles.k):
                _differentiate(tile, saved, into, scores, scratch, contained)
        return whole

    grads = calculate(contained=False)
    if (options.is_causal or mask is not None) and not all_finite(*vars(grads).values()):
        grads = calculate(contained=True)
    return (
        grads.q.to(q.dtype),
        grads.k.to(k.dtype),
        grads.v.to(v.dtype),
        None if grads.mask is None or mask is None else grads.mask.to(mask.dtype).view(mask.shape),
        None if alibi_slopes is None else _like(grads.slopes, alibi_slopes),
        None if sinks is None else _like(grads.sinks, sinks),
    )


def backward_from_saved(grad_out: Tensor, grad_lse: Tensor | None, *saved: Tensor, **options: Any) -> Any:
    """`attention_backward`, with what a forward pass saved in its order: its six tensors, then out and lse."""
    q, k, v, mask, slopes, sinks, out, lse = saved
    return attention_backward(grad_out, grad_lse, q, k, v, out, lse, mask, slopes, sinks, **options)


def _like(grad: Tensor | None, x: Tensor) -> Tensor | None:
    """A gradient (b, h) summed to the shape and dtype of the input, (h,) or (b, h)."""
    return None if grad is None else grad.sum_to_size(x.shape).to(x.dtype)


def _differentiate(
    tile: QueryTile, saved: Saved, into: Gradients, scores: Scores, scratch: Scratch, contained: bool
) -> None:
    """Add what one tile of queries has to add to all gradients."""
    q, dtype = saved.q, saved.lse.dtype
    lanes, group = q.shape[:2]
    rows = tile.stop - tile.start
    some = slice(tile.start, tile.stop)
    q_rows = q[:, :, some].flatten(1, 2).to(dtype)  # (lanes, group · rows, d)
    d_out = saved.d_out[:, :, some].flatten(1, 2).to(dtype).contiguous()  # (lanes, group · rows, d_v)
    delta = (saved.out[:, :, some].flatten(1, 2).to(dtype) * d_out).sum(-1, keepdim=True)  # (lanes, group · rows, 1)
    if saved.d_lse is not None:
        delta -= saved.d_lse[:, :, some].flatten(1, 2).to(dtype)[..., None]
    # A row that saw nothing has lse −inf; taken from +inf instead, every exp(score − lse) of it is 0.
    lse = saved.lse[:, :, some].flatten(1, 2)[..., None]
    lse = lse.masked_fill(lse == -torch.inf, torch.inf)
    d_q = torch.zeros_like(q_rows)

    for keys in tile.keys:
        if scores.hides_all(tile, keys):
            continue
        some_keys, shape = slice(keys.start, keys.stop), (lanes, group * rows, keys.stop - keys.start)
        k_rows = saved.k[:, some_keys].to(dtype)  # (lanes, columns, d)
        v_rows = saved.v[:, some_keys].to(dtype)  # (lanes, columns, d_v)
        score, capped = scores.tile(q_rows, k_rows, tile, keys, scratch.take("score", shape), contained=contained)
        weight = score.sub_(lse).exp_()
        d_score = torch.bmm(d_out, v_rows.mT, out=scratch.take("d_score", shape)).sub_(delta).mul_(weight)
        seen = scores.seen(tile, keys, lanes, group) if contained else None
        if seen is not None:
            weight.masked_fill_(~seen, 0.0)
            d_score.masked_fill_(~seen, 0.0)
        _add_bias_gradients(torch.unflatten(d_score, 1, (group, rows)), tile, keys, into, scores)
        if scores.options.softcap is not None:
            d_score.mul_(capped.div_(scores.options.softcap).square_().neg_().add_(1.0))
            if seen is not None:
                d_score.masked_fill_(~seen, 0.0)
        by_key = None if seen is None else seen.mT
        into.v[:, some_keys] += product(weight.mT, d_out, by_key)
        into.k[:, some_keys] += product(d_score.mT, q_rows, by_key).mul_(scores.options.scale)
        d_q += product(d_score, k_rows, seen).mul_(scores.options.scale)

    into.q[:, :, some] = torch.unflatten(d_q, 1, (group, rows))
    if into.sinks is not None and saved.sinks is not None:
        share = (saved.sinks[..., None] - lse.view(lanes, group, rows)).exp_()
        into.sinks.sub_((share * delta.view(lanes, group, rows)).sum(-1))


def _add_bias_gradients(d_score: Tensor, tile: QueryTile, keys: KeyTile, into: Gradients, scores: Scores) -> None:
    """The gradients of what was added to the scores; d_score (lanes, group, rows, columns)."""
    if into.mask is not None:
        mask = tile_of(tile_of(into.mask, tile.start, tile.stop, 2), keys.start, keys.stop, 3)
        mask.add_(d_score.sum_to_size(mask.shape))
    if into.slopes is not None:
        into.slopes.sub_((d_score * scores.distance(tile, keys)).sum((2, 3)))
