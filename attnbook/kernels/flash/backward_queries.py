"""The gradient of q, and of the slopes: one program a tile of queries, which goes through the keys that it may see.

What stands out: the same care for what is not finite as in `attnbook.kernels.flash.backward_keys`, here for a NaN in a
key that some queries of the tile may not see. The distances that slopes multiply are met in this walk too, so each
query also has its share of the slope's gradient written, and the shares are added up in an order that is always the
same.
"""

# Functions of Triton have no types to check: what a parameter holds is said beside it.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.flash.backward_tiles import (
    all_finite,
    before_softcap,
    careful_dot,
    keys_of_queries,
    score_gradient,
    sequence_of,
    weights_of,
)
from attnbook.kernels.tiles import NO_MASK, load_rows, load_tile, store_tile


@triton.jit
def queries_kernel(
    q, q_stride_b, q_stride_h, q_stride_t,  # (b, n_heads, t_q, d)
    k, k_stride_b, k_stride_h, k_stride_t,  # (b, n_kv_heads, t_kv, d)
    v, v_stride_b, v_stride_h, v_stride_t,  # (b, n_kv_heads, t_kv, d_v)
    tiles_of_k, tiles_of_v,  # descriptors of k and v, or None
    d_out, d_out_stride_b, d_out_stride_h, d_out_stride_t,  # (b, n_heads, t_q, d_v)
    row_lse, row_delta, row_stride_b, row_stride_h,  # (b, n_heads, t_q), from `rows_kernel`
    d_q, d_q_stride_b, d_q_stride_h, d_q_stride_t,  # (b, n_heads, t_q, d): written
    slope_parts,  # (b, n_heads, t_q): written, or None
    mask, mask_stride_b, mask_stride_h, mask_stride_q, mask_stride_k,  # (b, n_heads, t_q, t_kv), or None
    slopes, slope_stride_b, slope_stride_h,  # (b, n_heads), or None
    cu_q, cu_k,  # (sequences + 1,): where packed sequences start, or None
    t_q, t_kv, n_heads, group, q_tiles,
    window, scale, softcap, hidden,  # scale and softcap as `score_tile` takes them
    d_scale,  # the scale itself
    HEAD_DIM: tl.constexpr, D_V: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, STAGES: tl.constexpr,
    IS_VARLEN: tl.constexpr, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr, MASK_KIND: tl.constexpr, HAS_DESCRIPTORS: tl.constexpr, NEEDS_SLOPES: tl.constexpr,
    UPCAST: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """Write d_q of TILE_Q queries of one head of one sequence, and what they add to the slope's gradient."""
    # Which tile of which head of which sequence: late tiles first, since causal ones have the most keys.
    program = tl.program_id(0)
    tile = q_tiles - 1 - program % q_tiles
    head = program // q_tiles % n_heads
    sequence = (program // q_tiles // n_heads).to(tl.int64)
    start_q, len_q = sequence_of(sequence, cu_q, t_q, IS_VARLEN)
    start_k, len_k = sequence_of(sequence, cu_k, t_kv, IS_VARLEN)
    first_query = tile * TILE_Q
    queries = first_query + tl.arange(0, TILE_Q)
    there = queries < len_q
    if NEEDS_SLOPES:
        slope_parts += (sequence * n_heads + head) * t_q
    if first_query >= len_q:
        if NEEDS_SLOPES:
            tl.store(slope_parts + queries, tl.zeros((TILE_Q,), tl.float32), mask=queries < t_q)
        return

    # Where a descriptor finds key 0; all packed sequences lie in one batch.
    batch = 0 if IS_VARLEN else sequence.to(tl.int32)
    described_head, described_key = head // group, start_k.to(tl.int32)
    kv_head, head = (head // group).to(tl.int64), head.to(tl.int64)
    d_q += sequence * d_q_stride_b + head * d_q_stride_h + start_q * d_q_stride_t
    if AGAIN:
        written = load_tile(d_q, queries, len_q, d_q_stride_t, 1, HEAD_DIM, HEAD_TILE, True, UPCAST)
        if NEEDS_SLOPES:  # a pair that is hidden comes into these, too
            written += tl.load(slope_parts + queries, mask=there, other=0.0)[:, None]
        if all_finite(written):
            return
    q += sequence * q_stride_b + head * q_stride_h + start_q * q_stride_t
    k += sequence * k_stride_b + kv_head * k_stride_h + start_k * k_stride_t
    v += sequence * v_stride_b + kv_head * v_stride_h + start_k * v_stride_t
    d_out += sequence * d_out_stride_b + head * d_out_stride_h + start_q * d_out_stride_t
    in_rows = sequence * row_stride_b + head * row_stride_h + start_q
    if MASK_KIND != NO_MASK:  # at its pair of query 0 and key 0
        mask += sequence * mask_stride_b + head * mask_stride_h + start_q * mask_stride_q + start_k * mask_stride_k
    slope = tl.load(slopes + sequence * slope_stride_b + head * slope_stride_h) if HAS_ALIBI else 0.0

    q_tile = load_tile(q, queries, len_q, q_stride_t, 1, HEAD_DIM, HEAD_TILE, True, UPCAST)  # (TILE_Q, HEAD_TILE)
    d_out_tile = load_tile(d_out, queries, len_q, d_out_stride_t, 1, D_V, VALUE_TILE, True, UPCAST)
    # A query that is not there is like one that saw nothing.
    lse = tl.load(row_lse + in_rows + queries, mask=there, other=float("inf"))
    delta = tl.load(row_delta + in_rows + queries, mask=there, other=0.0)

    sum_q = tl.zeros((TILE_Q, HEAD_TILE), tl.float32)
    sum_slope = tl.zeros((TILE_Q,), tl.float32)
    last_query = tl.minimum(first_query + TILE_Q, len_q) - 1
    first, stop = keys_of_queries(first_query, last_query, len_q, len_k, window, IS_CAUSAL, HAS_WINDOW)
    sum_q, sum_slope = add_keys(
        sum_q, sum_slope, q_tile, d_out_tile, lse, delta, queries, first, stop, k, k_stride_t, v, v_stride_t,
        tiles_of_k, tiles_of_v, batch, described_head, described_key,
        mask, mask_stride_q, mask_stride_k, slope, len_q, len_k, window, scale, softcap, hidden,
        HEAD_DIM, D_V, HEAD_TILE, VALUE_TILE, TILE_Q, TILE_K, STAGES, IS_CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI,
        MASK_KIND, HAS_DESCRIPTORS, NEEDS_SLOPES, UPCAST, AGAIN,
    )  # fmt: skip

    store_tile(d_q, queries, len_q, d_q_stride_t, 1, sum_q * d_scale, HEAD_DIM, HEAD_TILE, UPCAST)
    if NEEDS_SLOPES:
        tl.store(slope_parts + queries, tl.where(there, -sum_slope, 0.0), mask=queries < t_q)


@triton.jit
def add_keys(
    sum_q,  # (TILE_Q, HEAD_TILE), float32
    sum_slope,  # (TILE_Q,), float32
    q_tile,  # (TILE_Q, HEAD_TILE)
    d_out_tile,  # (TILE_Q, VALUE_TILE)
    lse, delta,  # (TILE_Q,)
    queries,  # (TILE_Q,)
    first, stop,  # keys from the first up to, and without, the second
    k, k_stride_t,
    v, v_stride_t,
    tiles_of_k, tiles_of_v, batch, kv_head, start_k,  # descriptors, or None, and where in them key 0 lies
    mask, mask_stride_q, mask_stride_k,
    slope, len_q, len_k, window, scale, softcap, hidden,
    HEAD_DIM: tl.constexpr, D_V: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_ALIBI: tl.constexpr,
    MASK_KIND: tl.constexpr, HAS_DESCRIPTORS: tl.constexpr, NEEDS_SLOPES: tl.constexpr, UPCAST: tl.constexpr,
    CAREFUL: tl.constexpr,
):  # fmt: skip
    """The sums for d_q, without the scale, and for the slope, with what the keys add to them."""
    for first_key in tl.range(first // TILE_K * TILE_K, stop, TILE_K, num_stages=STAGES):
        keys = first_key + tl.arange(0, TILE_K)
        k_tile = load_rows(
            k, keys, len_k, k_stride_t, 1, tiles_of_k, batch, kv_head, start_k + first_key,
            HEAD_DIM, HEAD_TILE, True, HAS_DESCRIPTORS, UPCAST,
        )  # (TILE_K, HEAD_TILE)  # fmt: skip
        v_tile = load_rows(
            v, keys, len_k, v_stride_t, 1, tiles_of_v, batch, kv_head, start_k + first_key,
            D_V, VALUE_TILE, True, HAS_DESCRIPTORS, UPCAST,
        )  # (TILE_K, VALUE_TILE)  # fmt: skip

        product = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee")  # (TILE_Q, TILE_K)
        weight, tangent, seen = weights_of(
            product, lse[:, None], queries[:, None], keys[None, :], len_q, len_k, window, scale, softcap, slope,
            mask, mask_stride_q, mask_stride_k, hidden, IS_CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI, MASK_KIND, False,
        )  # fmt: skip
        d_weight = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")  # (TILE_Q, TILE_K)
        d_score = score_gradient(weight, d_weight, delta[:, None], seen, CAREFUL)
        if NEEDS_SLOPES:
            distance = tl.abs(queries[:, None] + (len_k - len_q) - keys[None, :]).to(tl.float32)
            sum_slope += tl.sum(d_score * distance, axis=1)
        d_product = before_softcap(d_score, tangent, seen, HAS_SOFTCAP)
        if CAREFUL:
            sum_q = careful_dot(d_product, k_tile, sum_q, seen)
        else:
            sum_q = tl.dot(d_product.to(k_tile.dtype), k_tile, sum_q, input_precision="ieee")
    return sum_q, sum_slope
