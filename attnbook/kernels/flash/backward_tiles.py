"""What the backward kernels share: which tiles a tile meets, its weights, and the gradient of its scores.

With p = exp(score − lse) the weights of forward are back, and delta stands for the whole softmax of a row (see
`attnbook.kernels.flash.backward_rows`), so each pair of tiles is on its own:

    weight    = p                               0 where not seen
    d_score   = p · (d_out vᵀ − delta)
    d_product = d_score · (1 − tanh²)           the softcap's slope; the scale comes once, at the end

All functions work on tiles of any orientation: (TILE_Q, TILE_K), or turned round with `query_at`, lse and delta as a
row and `key_at` as a column.
"""

# Functions of Triton have no types to check: what a parameter holds is said beside it.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.available import interpreting
from attnbook.kernels.tiles import FLOATS, NO_MASK, hide, in_sight, load_mask, score_tile

HUGE: tl.constexpr = tl.constexpr(2.0**65)
"""Finite in bfloat16 and float32; its square is more than float32 holds."""

INTERPRETED: tl.constexpr = tl.constexpr(interpreting())
"""Triton's interpreter cannot multiply bfloat16."""


@triton.jit
def sequence_of(
    sequence,  # its number, int64
    cu,  # (sequences + 1,): where packed sequences start, or None
    length,  # of all alike, where they are not packed
    IS_VARLEN: tl.constexpr,
):
    """The first row of a sequence along its axis, int64, and its length."""
    start = sequence * 0
    if IS_VARLEN:
        start = tl.load(cu + sequence).to(tl.int64)
        length = tl.load(cu + sequence + 1) - tl.load(cu + sequence)
    return start, length


@triton.jit
def keys_of_queries(first_query, last_query, t_q, t_kv, window, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """The keys, from the first up to and without the second, that a query of [first_query, last_query] may see."""
    ahead = t_kv - t_q
    first, stop = 0, t_kv
    if IS_CAUSAL:
        stop = tl.minimum(t_kv, last_query + ahead + 1)
    if HAS_WINDOW:
        first = tl.maximum(0, first_query + ahead - window + 1)
    return first, stop


@triton.jit
def queries_of_keys(first_key, last_key, t_q, t_kv, window, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """The queries, from the first up to and without the second, that may see a key of [first_key, last_key]."""
    ahead = t_kv - t_q
    first, stop = 0, t_q
    if IS_CAUSAL:
        first = tl.maximum(0, first_key - ahead)
    if HAS_WINDOW:
        stop = tl.minimum(t_q, last_key - ahead + window)
    return first, stop


@triton.jit
def weights_of(
    product,  # q kᵀ, or k qᵀ turned round: float32
    lse,  # of each query, base 2; inf for one that saw nothing
    queries,  # numbers of queries and keys in their sequence, as tiles that broadcast to the product's
    keys,
    t_q,
    t_kv,
    window,
    scale,
    softcap,
    slope,
    mask,  # a pointer to the pair of query 0 and key 0, or None
    mask_stride_q,
    mask_stride_k,
    hidden,
    IS_CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    MASK_KIND: tl.constexpr,
    CHECKED: tl.constexpr,  # does what a query has that is not there come into what is written?
):
    """The weights of a tile, the tangent of its softcap, and which pairs are seen."""
    query_at = queries + (t_kv - t_q)
    seen = in_sight(query_at, keys, t_kv, window, IS_CAUSAL, HAS_WINDOW)
    if CHECKED:  # a query that is not there is read as 0, and 0 times an infinite key is NaN
        seen = seen & (queries < t_q)
    added = product
    if MASK_KIND != NO_MASK:
        pointers = mask + queries.to(tl.int64) * mask_stride_q + keys.to(tl.int64) * mask_stride_k
        let_through, added = load_mask(pointers, (queries < t_q) & (keys < t_kv), hidden, MASK_KIND)
        seen = seen & let_through
    score, tangent = score_tile(
        product, query_at, keys, scale, softcap, slope, added, HAS_SOFTCAP, HAS_ALIBI, MASK_KIND == FLOATS
    )
    return tl.exp2(hide(score, seen) - lse), tangent, seen


@triton.jit
def score_gradient(
    weight,
    d_weight,  # d_out vᵀ, turned as the weights are
    delta,  # of each query
    seen,
    CAREFUL: tl.constexpr,  # may something be not finite where it is not seen?
):
    """The gradient of the scores, after the softcap."""
    d_score = weight * (d_weight - delta)
    if CAREFUL:
        d_score = tl.where(seen, d_score, 0.0)
    return d_score


@triton.jit
def before_softcap(d_score, tangent, seen, HAS_SOFTCAP: tl.constexpr):
    """From the gradient of the scores to that of the products of q and k, without the scale.

    What is not there is read as 0, and the tangent of 0 times an infinite query or key is NaN: hidden here always.
    """
    if HAS_SOFTCAP:
        d_score = tl.where(seen, d_score * (1.0 - tangent * tangent), 0.0)
    return d_score


@triton.jit
def all_finite(tile):
    """Is no number of a tile (ROWS, COLUMNS) NaN or infinite?"""
    finite = tl.abs(tile.to(tl.float32)) < float("inf")  # false for NaN
    # Over both axes at once: Triton 3.6 fails to compile one after the other for sm_100.
    return tl.min(finite.to(tl.int32)) == 1


@triton.jit
def careful_dot(
    share,  # (ROWS, OTHERS), float32; 0 where not seen
    tile,  # (OTHERS, COLUMNS)
    total,  # (ROWS, COLUMNS), float32
    seen,  # which pairs are, as a tile that broadcasts to (ROWS, OTHERS)
):
    """The sum total + share · tile over the pairs that are seen alone: no 0 · NaN, and a NaN stays in its component.

    What is not finite in the tile is made 1 or −1 for the product, and comes in by products that overflow: a share
    above 0 of inf adds HUGE · HUGE, which is inf, one below 0 takes it off, one of 0 does both, which makes NaN; a NaN
    in the tile counts as inf and −inf. So nothing as large as the sum is needed beside it.
    """
    MARK: tl.constexpr = tl.float32 if INTERPRETED or tile.dtype == tl.float32 else tl.bfloat16
    upwards = (tile == float("inf")) | (tile != tile)
    downwards = (tile == float("-inf")) | (tile != tile)
    finite = tl.where(upwards, 1.0, tl.where(downwards, -1.0, tile)).to(tile.dtype)
    total = tl.dot(share.to(tile.dtype), finite, total, input_precision="ieee")
    up, down = tl.where(upwards, HUGE, 0.0), tl.where(downwards, HUGE, 0.0)  # (OTHERS, COLUMNS)
    positive = tl.where(seen & (share >= 0.0), HUGE, 0.0).to(MARK)  # (ROWS, OTHERS)
    total = tl.dot(positive, up.to(MARK), total, input_precision="ieee")
    total = tl.dot(positive, (-down).to(MARK), total, input_precision="ieee")
    negative = tl.where(seen & (share <= 0.0), HUGE, 0.0).to(MARK)
    total = tl.dot(negative, down.to(MARK), total, input_precision="ieee")
    return tl.dot(negative, (-up).to(MARK), total, input_precision="ieee")
