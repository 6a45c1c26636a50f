"""The gradient of a mask of floats: that of the scores, summed over the axes along which the mask was broadcast.

What stands out: a program owns one tile of the mask and calculates the scores' gradient there once more, for every
head and sequence that the tile serves, so nothing of the size of all scores is kept and no two programs add to one
number. Where the mask has length 1 along the queries or the keys, each program writes what its tile adds up to, and
these parts are summed afterwards.
"""

# Functions of Triton have no types to check: what a parameter holds is said beside it.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.flash.backward_tiles import keys_of_queries, score_gradient, sequence_of, weights_of
from attnbook.kernels.tiles import load_tile


@triton.jit
def mask_kernel(
    q, q_stride_b, q_stride_h, q_stride_t,  # (b, n_heads, t_q, d)
    k, k_stride_b, k_stride_h, k_stride_t,  # (b, n_kv_heads, t_kv, d)
    v, v_stride_b, v_stride_h, v_stride_t,  # (b, n_kv_heads, t_kv, d_v)
    d_out, d_out_stride_b, d_out_stride_h, d_out_stride_t,  # (b, n_heads, t_q, d_v)
    row_lse, row_delta, row_stride_b, row_stride_h,  # (b, n_heads, t_q), from `rows_kernel`
    # (mask's b, mask's h, t_q or tiles of it, t_kv or tiles of it): written
    parts, part_stride_b, part_stride_h, part_stride_q, part_stride_k,
    mask, mask_stride_b, mask_stride_h, mask_stride_q, mask_stride_k,  # (b, n_heads, t_q, t_kv)
    slopes, slope_stride_b, slope_stride_h,  # (b, n_heads), or None
    cu_q, cu_k,  # (sequences + 1,): where packed sequences start, or None
    t_q, t_kv, group, q_tiles, k_tiles,
    mask_heads, heads_each,  # length of the mask along h, and how many heads of q each serves
    sequences_each,  # how many sequences each of its entries along b serves; packed: 1
    window, scale, softcap, hidden,  # scale and softcap as `score_tile` takes them
    HEAD_DIM: tl.constexpr, D_V: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr,
    IS_VARLEN: tl.constexpr, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr, MASK_KIND: tl.constexpr, UPCAST: tl.constexpr,
    SUM_QUERIES: tl.constexpr, SUM_KEYS: tl.constexpr,  # has the mask length 1 there?
):  # fmt: skip
    """Write the gradient of one tile of the mask, or what it adds up to."""
    program = tl.program_id(0)
    tile_k = program % k_tiles
    tile_q = program // k_tiles % q_tiles
    mask_head = program // k_tiles // q_tiles % mask_heads
    mask_sequence = program // k_tiles // q_tiles // mask_heads
    start_q, len_q = sequence_of(mask_sequence.to(tl.int64), cu_q, t_q, IS_VARLEN)
    start_k, len_k = sequence_of(mask_sequence.to(tl.int64), cu_k, t_kv, IS_VARLEN)
    first_query, first_key = tile_q * TILE_Q, tile_k * TILE_K
    if (first_query >= len_q) | (first_key >= len_k):
        return

    queries, keys = first_query + tl.arange(0, TILE_Q), first_key + tl.arange(0, TILE_K)
    last_query = tl.minimum(first_query + TILE_Q, len_q) - 1
    first, stop = keys_of_queries(first_query, last_query, len_q, len_k, window, IS_CAUSAL, HAS_WINDOW)
    some_seen = (first_key < stop) & (first_key + TILE_K > first)
    total = tl.zeros((TILE_Q, TILE_K), tl.float32)
    for member in range(tl.where(some_seen, sequences_each * heads_each, 0)):
        sequence = (mask_sequence * sequences_each + member // heads_each).to(tl.int64)
        head = mask_head * heads_each + member % heads_each
        kv_head, head = (head // group).to(tl.int64), head.to(tl.int64)
        in_q = q + sequence * q_stride_b + head * q_stride_h + start_q * q_stride_t
        in_k = k + sequence * k_stride_b + kv_head * k_stride_h + start_k * k_stride_t
        q_tile = load_tile(in_q, queries, len_q, q_stride_t, 1, HEAD_DIM, HEAD_TILE, True, UPCAST)
        k_tile = load_tile(in_k, keys, len_k, k_stride_t, 1, HEAD_DIM, HEAD_TILE, True, UPCAST)
        product = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee")  # (TILE_Q, TILE_K)

        in_rows = sequence * row_stride_b + head * row_stride_h + start_q + queries
        lse = tl.load(row_lse + in_rows, mask=queries < len_q, other=float("inf"))
        delta = tl.load(row_delta + in_rows, mask=queries < len_q, other=0.0)
        in_mask = mask + sequence * mask_stride_b + head * mask_stride_h
        in_mask += start_q * mask_stride_q + start_k * mask_stride_k
        slope = tl.load(slopes + sequence * slope_stride_b + head * slope_stride_h) if HAS_ALIBI else 0.0
        weight, _, seen = weights_of(
            product, lse[:, None], queries[:, None], keys[None, :], len_q, len_k, window, scale, softcap, slope,
            in_mask, mask_stride_q, mask_stride_k, hidden, IS_CAUSAL, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI, MASK_KIND,
            False,
        )  # fmt: skip

        in_d_out = d_out + sequence * d_out_stride_b + head * d_out_stride_h + start_q * d_out_stride_t
        in_v = v + sequence * v_stride_b + kv_head * v_stride_h + start_k * v_stride_t
        d_out_tile = load_tile(in_d_out, queries, len_q, d_out_stride_t, 1, D_V, VALUE_TILE, True, UPCAST)
        v_tile = load_tile(in_v, keys, len_k, v_stride_t, 1, D_V, VALUE_TILE, True, UPCAST)
        d_weight = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")  # (TILE_Q, TILE_K)
        total += score_gradient(weight, d_weight, delta[:, None], seen, True)

    parts += mask_sequence.to(tl.int64) * part_stride_b + mask_head.to(tl.int64) * part_stride_h
    at_query = (tile_q if SUM_QUERIES else start_q + queries).to(tl.int64) * part_stride_q
    at_key = (tile_k if SUM_KEYS else start_k + keys).to(tl.int64) * part_stride_k
    if SUM_QUERIES and SUM_KEYS:
        tl.store(parts + at_query + at_key, tl.sum(tl.sum(total, axis=1), axis=0))
    elif SUM_QUERIES:
        tl.store(parts + at_query + at_key, tl.sum(total, axis=0), mask=keys < len_k)
    elif SUM_KEYS:
        tl.store(parts + at_query + at_key, tl.sum(total, axis=1), mask=queries < len_q)
    else:
        there = (queries < len_q)[:, None] & (keys < len_k)[None, :]
        tl.store(parts + at_query[:, None] + at_key[None, :], total, mask=there)
