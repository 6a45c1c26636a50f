"""The gradients of k and v: one program a tile of keys, which goes through the queries that may see it.

What stands out:

- A program belongs to a key head and takes the query heads of its group one after another: what grouped heads add up
  to is added up in registers, in an order that is always the same. k and v are never repeated.
- The tiles of scores are turned round, (TILE_K, TILE_Q): so they are the left sides of the products that they go into.
- Only queries that may see a key of the tile are visited. The weight of a pair that is not seen is 0, but 0 · NaN is
  NaN: a NaN in one query would reach keys that it may not see. The first launch does not care. A second one (AGAIN)
  looks at what was written, and sums up again, slowly and carefully, what is not finite.

Dao et al. 2022 (algorithm 4), Dao 2023 (algorithm 2).
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
    queries_of_keys,
    score_gradient,
    sequence_of,
    weights_of,
)
from attnbook.kernels.tiles import NO_MASK, load_rows, load_tile, store_tile


@triton.jit
def keys_kernel(
    q, q_stride_b, q_stride_h, q_stride_t,  # (b, n_heads, t_q, d)
    k, k_stride_b, k_stride_h, k_stride_t,  # (b, n_kv_heads, t_kv, d)
    v, v_stride_b, v_stride_h, v_stride_t,  # (b, n_kv_heads, t_kv, d_v)
    d_out, d_out_stride_b, d_out_stride_h, d_out_stride_t,  # (b, n_heads, t_q, d_v)
    tiles_of_q, tiles_of_d_out,  # descriptors of q and d_out, or None
    row_lse, row_delta, row_stride_b, row_stride_h,  # (b, n_heads, t_q), from `rows_kernel`
    d_k, d_k_stride_b, d_k_stride_h, d_k_stride_t,  # (b, n_kv_heads, t_kv, d): written
    d_v, d_v_stride_b, d_v_stride_h, d_v_stride_t,  # (b, n_kv_heads, t_kv, d_v): written
    mask, mask_stride_b, mask_stride_h, mask_stride_q, mask_stride_k,  # (b, n_heads, t_q, t_kv), or None
    slopes, slope_stride_b, slope_stride_h,  # (b, n_heads), or None
    cu_q, cu_k,  # (sequences + 1,): where packed sequences start, or None
    t_q, t_kv, n_heads, group, k_tiles,
    window, scale, softcap, hidden,  # scale and softcap as `score_tile` takes them
    d_scale,  # the scale itself
    HEAD_DIM: tl.constexpr, D_V: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, STAGES: tl.constexpr,
    IS_VARLEN: tl.constexpr, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr, MASK_KIND: tl.constexpr, HAS_DESCRIPTORS: tl.constexpr, UPCAST: tl.constexpr,
    AGAIN: tl.constexpr,
):  # fmt: skip
    """Write d_k and d_v of TILE_K keys of one key head of one sequence."""
    # Which tile of which head of which sequence: early tiles first, since in causal calls most queries see them.
    program = tl.program_id(0)
    n_kv_heads = n_heads // group
    first_key = program % k_tiles * TILE_K
    kv_head = program // k_tiles % n_kv_heads
    sequence = (program // k_tiles // n_kv_heads).to(tl.int64)
    start_q, len_q = sequence_of(sequence, cu_q, t_q, IS_VARLEN)
    start_k, len_k = sequence_of(sequence, cu_k, t_kv, IS_VARLEN)
    if first_key >= len_k:
        return

    keys = first_key + tl.arange(0, TILE_K)
    d_k += sequence * d_k_stride_b + kv_head.to(tl.int64) * d_k_stride_h + start_k * d_k_stride_t
    d_v += sequence * d_v_stride_b + kv_head.to(tl.int64) * d_v_stride_h + start_k * d_v_stride_t
    if AGAIN:
        written_k = load_tile(d_k, keys, len_k, d_k_stride_t, 1, HEAD_DIM, HEAD_TILE, True, UPCAST)
        written_v = load_tile(d_v, keys, len_k, d_v_stride_t, 1, D_V, VALUE_TILE, True, UPCAST)
        if all_finite(written_k) & all_finite(written_v):
            return
    k += sequence * k_stride_b + kv_head.to(tl.int64) * k_stride_h + start_k * k_stride_t
    v += sequence * v_stride_b + kv_head.to(tl.int64) * v_stride_h + start_k * v_stride_t
    k_tile = load_tile(k, keys, len_k, k_stride_t, 1, HEAD_DIM, HEAD_TILE, True, UPCAST)  # (TILE_K, HEAD_TILE)
    v_tile = load_tile(v, keys, len_k, v_stride_t, 1, D_V, VALUE_TILE, True, UPCAST)  # (TILE_K, VALUE_TILE)
    # Pointers to query 0 of the group's first head; the mask's to its pair with key 0.
    first_head = (kv_head * group).to(tl.int64)
    q += sequence * q_stride_b + first_head * q_stride_h + start_q * q_stride_t
    d_out += sequence * d_out_stride_b + first_head * d_out_stride_h + start_q * d_out_stride_t
    row_lse += sequence * row_stride_b + first_head * row_stride_h + start_q
    row_delta += sequence * row_stride_b + first_head * row_stride_h + start_q
    if MASK_KIND != NO_MASK:
        mask += sequence * mask_stride_b + first_head * mask_stride_h
        mask += start_q * mask_stride_q + start_k * mask_stride_k
    if HAS_ALIBI:
        slopes += sequence * slope_stride_b + first_head * slope_stride_h

    sum_k = tl.zeros((TILE_K, HEAD_TILE), tl.float32)
    sum_v = tl.zeros((TILE_K, VALUE_TILE), tl.float32)
    batch = 0 if IS_VARLEN else sequence.to(tl.int32)
    sum_k, sum_v = add_queries(
        sum_k, sum_v, k_tile, v_tile, keys, first_key, q, q_stride_h, q_stride_t,
        d_out, d_out_stride_h, d_out_stride_t, tiles_of_q, tiles_of_d_out, batch, kv_head * group,
        start_q.to(tl.int32), row_lse, row_delta, row_stride_h,
        mask, mask_stride_h, mask_stride_q, mask_stride_k, slopes, slope_stride_h,
        len_q, len_k, group, window, scale, softcap, hidden, HEAD_DIM, D_V, HEAD_TILE, VALUE_TILE,
        TILE_Q, TILE_K, STAGES, IS_CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI, MASK_KIND,
        HAS_DESCRIPTORS, UPCAST, AGAIN,
    )  # fmt: skip

    store_tile(d_k, keys, len_k, d_k_stride_t, 1, sum_k * d_scale, HEAD_DIM, HEAD_TILE, UPCAST)
    store_tile(d_v, keys, len_k, d_v_stride_t, 1, sum_v, D_V, VALUE_TILE, UPCAST)


@triton.jit
def add_queries(
    sum_k,  # (TILE_K, HEAD_TILE), float32
    sum_v,  # (TILE_K, VALUE_TILE), float32
    k_tile,  # (TILE_K, HEAD_TILE)
    v_tile,  # (TILE_K, VALUE_TILE)
    keys, first_key,  # (TILE_K,), and the first of them
    q, q_stride_h, q_stride_t,
    d_out, d_out_stride_h, d_out_stride_t,
    tiles_of_q, tiles_of_d_out, batch, first_head, start_q,  # descriptors, or None, and where in them query 0 lies
    row_lse, row_delta, row_stride_h,
    mask, mask_stride_h, mask_stride_q, mask_stride_k,
    slopes, slope_stride_h,
    len_q, len_k, heads, window, scale, softcap, hidden,
    HEAD_DIM: tl.constexpr, D_V: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr, STAGES: tl.constexpr,
    IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_ALIBI: tl.constexpr,
    MASK_KIND: tl.constexpr, HAS_DESCRIPTORS: tl.constexpr, UPCAST: tl.constexpr,
    CAREFUL: tl.constexpr,
):  # fmt: skip
    """The sums for d_k, without the scale, and d_v, with what the queries of so many heads add to them."""
    last_key = tl.minimum(first_key + TILE_K, len_k) - 1
    first, stop = queries_of_keys(first_key, last_key, len_q, len_k, window, IS_CAUSAL, HAS_WINDOW)
    first = first // TILE_Q * TILE_Q
    steps = tl.maximum(tl.cdiv(stop - first, TILE_Q), 0)  # for each head
    # One loop over heads and their tiles: between two loops, the sums would have to be moved.
    for step in tl.range(0, heads * steps, num_stages=STAGES):
        head = (step // steps).to(tl.int64)
        first_query = first + step % steps * TILE_Q
        queries = first_query + tl.arange(0, TILE_Q)
        there = queries < len_q
        in_q, in_d_out = q + head * q_stride_h, d_out + head * d_out_stride_h
        in_head = first_head + step // steps
        q_tile = load_rows(
            in_q, queries, len_q, q_stride_t, 1, tiles_of_q, batch, in_head, start_q + first_query,
            HEAD_DIM, HEAD_TILE, True, HAS_DESCRIPTORS, UPCAST,
        )  # (TILE_Q, HEAD_TILE)  # fmt: skip
        d_out_tile = load_rows(
            in_d_out, queries, len_q, d_out_stride_t, 1, tiles_of_d_out, batch, in_head, start_q + first_query,
            D_V, VALUE_TILE, True, HAS_DESCRIPTORS, UPCAST,
        )  # (TILE_Q, VALUE_TILE)  # fmt: skip
        # A query that is not there is like one that saw nothing.
        lse = tl.load(row_lse + head * row_stride_h + queries, mask=there, other=float("inf"))
        delta = tl.load(row_delta + head * row_stride_h + queries, mask=there, other=0.0)
        slope = tl.load(slopes + head * slope_stride_h) if HAS_ALIBI else 0.0
        in_mask = mask + head * mask_stride_h if MASK_KIND != NO_MASK else mask

        product = tl.dot(k_tile, tl.trans(q_tile), input_precision="ieee")  # (TILE_K, TILE_Q)
        weight, tangent, seen = weights_of(
            product, lse[None, :], queries[None, :], keys[:, None], len_q, len_k, window, scale, softcap, slope,
            in_mask, mask_stride_q, mask_stride_k, hidden, IS_CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI, MASK_KIND,
            True,
        )  # fmt: skip
        if CAREFUL:
            weight = tl.where(seen, weight, 0.0)  # an lse may be NaN
            sum_v = careful_dot(weight, d_out_tile, sum_v, seen)
        else:
            sum_v = tl.dot(weight.to(d_out_tile.dtype), d_out_tile, sum_v, input_precision="ieee")

        d_weight = tl.dot(v_tile, tl.trans(d_out_tile), input_precision="ieee")  # (TILE_K, TILE_Q)
        d_score = score_gradient(weight, d_weight, delta[None, :], seen, CAREFUL)
        d_product = before_softcap(d_score, tangent, seen, HAS_SOFTCAP)
        if CAREFUL:
            sum_k = careful_dot(d_product, q_tile, sum_k, seen)
        else:
            sum_k = tl.dot(d_product.to(q_tile.dtype), q_tile, sum_k, input_precision="ieee")
    return sum_k, sum_v
