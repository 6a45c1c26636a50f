"""The kernel that attends to one split of the keys: all query heads of one group, over SPLIT keys at most.

    rows of a tile                        keys of one sequence and one key/value head
    head 0, query 0 … t_q − 1             [ split 0 ][ split 1 ][ split 2 ][ rest ]
    head 1, query 0 … t_q − 1                  |          |          |        |
    …                                       program    program    program  program
    last head of the group, …

Two things stand out. The query heads that share a key/value head are rows of one tile, so K and V are read once for
all of them and never repeated. And where a split begins is told by the sequence alone, at multiples of SPLIT: nothing
that else is in the batch changes which numbers are added in which order. Dao et al. 2023 (Flash-Decoding).
"""

# Bodies of kernels are Triton, which has no types to check: Any throughout.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.decode.attend import attend, load_rows, nothing
from attnbook.kernels.decode.containment import is_finite
from attnbook.kernels.tiles import LN2, NO_MASK


@triton.jit
def split_kernel(
    q,  # (b, n_heads, t_q, head_dim)
    k,  # (b, n_kv_heads, t_kv, head_dim), or in pages (n_pages, n_kv_heads, PAGE_SIZE, head_dim)
    v,  # (b, n_kv_heads, t_kv, d_v), or in pages (n_pages, n_kv_heads, PAGE_SIZE, d_v)
    k_tiles,  # descriptors of k and v, or None
    v_tiles,
    mask,  # (b, n_heads, t_q, t_kv): bytes, 0 = hidden, or floats to be added
    slopes,  # of ALiBi (b, n_heads), float32
    page_table,  # (b, pages of the longest)
    lengths,  # (b,): keys of each sequence
    new_rows,  # (b,): queries of each sequence
    averages,  # (parts, b, n_heads, t_q, d_v), float32: to be written
    lses,  # (parts, b, n_heads, t_q), float32: to be written
    scale,  # as `score_tile` wants it, with a factor log₂ e
    softcap,
    hidden,  # a float mask hides where it is at most this
    window,
    t_q,
    t_kv,
    n_kv_heads,
    group,  # query heads for each key/value head
    parts,  # splits of the longest sequence
    q_stride_b,
    q_stride_h,
    q_stride_t,
    q_stride_d,
    k_stride_b,  # in pages: from one page to the next
    k_stride_h,
    k_stride_t,
    k_stride_d,
    v_stride_b,
    v_stride_h,
    v_stride_t,
    v_stride_d,
    mask_stride_b,
    mask_stride_h,
    mask_stride_q,
    mask_stride_k,
    slope_stride_b,
    slope_stride_h,
    table_stride_b,
    averages_stride_part,
    averages_stride_b,
    averages_stride_h,
    averages_stride_t,
    lses_stride_part,
    lses_stride_b,
    lses_stride_h,
    lses_stride_t,
    HEAD_DIM: tl.constexpr,
    D_V: tl.constexpr,
    PADDED_D: tl.constexpr,  # the powers of two to which HEAD_DIM and D_V are filled
    PADDED_V: tl.constexpr,
    SPLIT: tl.constexpr,  # keys of a split
    TILE_ROWS: tl.constexpr,
    TILE_K: tl.constexpr,
    PAGE_SIZE: tl.constexpr,  # 0 where the keys of a sequence lie one after another
    SIGHT_DIFFERS: tl.constexpr,  # causal, with more than one query: some keys are for some queries only
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    MASK_KIND: tl.constexpr,  # NO_MASK, BOOLEANS or FLOATS
    HAS_LENGTHS: tl.constexpr,
    HAS_NEW_ROWS: tl.constexpr,
    HAS_DESCRIPTORS: tl.constexpr,
    UPCAST: tl.constexpr,  # the interpreter calculates bfloat16 wrongly: read it as float32
):
    """For each row of the tile: the average of the split's values, and its lse (natural); 0 and −inf without a key.

    The programs: tiles of rows, fastest, for they read the same keys and should run side by side; parts; key/value
    heads; sequences.
    """
    row_tiles = tl.cdiv(group * t_q, TILE_ROWS)
    program = tl.program_id(0)
    row_tile = program % row_tiles
    part = program // row_tiles % parts
    kv_head = program // row_tiles // parts % n_kv_heads
    b = program // row_tiles // parts // n_kv_heads

    own_t_q, own_t_kv = sizes_of(b, t_q, t_kv, lengths, new_rows, HAS_LENGTHS, HAS_NEW_ROWS)
    first = first_in_sight(own_t_q, own_t_kv, window, HAS_WINDOW)
    split = first // SPLIT + part
    start = tl.maximum(split * SPLIT, first)
    stop = tl.minimum(split * SPLIT + SPLIT, own_t_kv)
    if start >= stop:
        return  # a shorter sequence has fewer parts, and nobody reads this one

    row = row_tile * TILE_ROWS + tl.arange(0, TILE_ROWS)  # (TILE_ROWS,), head by head, query by query
    is_row = row < group * t_q
    query = row % t_q
    b_64, kv_head_64 = b.to(tl.int64), kv_head.to(tl.int64)
    head, query_64 = (kv_head * group + row // t_q).to(tl.int64), query.to(tl.int64)
    q_offset = b_64 * q_stride_b + head * q_stride_h + query_64 * q_stride_t
    q_tile = load_rows(q, q_offset, is_row, q_stride_d, HEAD_DIM, PADDED_D, UPCAST)  # (TILE_ROWS, PADDED_D)
    slope = 0.0
    if HAS_ALIBI:
        slopes_offset = b_64 * slope_stride_b + head * slope_stride_h
        slope = tl.load(slopes + slopes_offset, mask=is_row, other=0.0)[:, None]  # (TILE_ROWS, 1)

    query_at = (query + (own_t_kv - own_t_q))[:, None]  # (TILE_ROWS, 1): the key of the same token
    is_query = (is_row & (query < own_t_q))[:, None]
    mask_rows = mask
    if MASK_KIND != NO_MASK:
        mask_offset = b_64 * mask_stride_b + head * mask_stride_h + query_64 * mask_stride_q
        mask_rows = mask + mask_offset[:, None]  # (TILE_ROWS, 1)
    k_head, v_head = k + kv_head_64 * k_stride_h, v + kv_head_64 * v_stride_h
    table_row = page_table
    if PAGE_SIZE:
        table_row = page_table + b_64 * table_stride_b

    whole = stop  # up to here all is read by descriptor, where there are any
    if HAS_DESCRIPTORS and PAGE_SIZE:
        whole = stop - (stop - start) % TILE_K  # behind a sequence's last key its page holds anything, NaN too
    average, total, top = nothing(TILE_ROWS, PADDED_V)
    average, total, top = attend(
        average, total, top, q_tile, k_head, v_head, k_tiles, v_tiles, b, kv_head, table_row, start, whole,
        is_query, query_at, mask_rows, slope, scale, softcap, hidden, window,
        k_stride_b, k_stride_t, k_stride_d, v_stride_b, v_stride_t, v_stride_d, mask_stride_k,
        HEAD_DIM, D_V, PADDED_D, PADDED_V, TILE_K, PAGE_SIZE, SIGHT_DIFFERS, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI,
        MASK_KIND, HAS_DESCRIPTORS, UPCAST, False,
    )  # fmt: skip
    if HAS_DESCRIPTORS and PAGE_SIZE:
        average, total, top = attend(
            average, total, top, q_tile, k_head, v_head, k_tiles, v_tiles, b, kv_head, table_row, whole, stop,
            is_query, query_at, mask_rows, slope, scale, softcap, hidden, window,
            k_stride_b, k_stride_t, k_stride_d, v_stride_b, v_stride_t, v_stride_d, mask_stride_k,
            HEAD_DIM, D_V, PADDED_D, PADDED_V, TILE_K, PAGE_SIZE, SIGHT_DIFFERS, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI,
            MASK_KIND, False, UPCAST, False,
        )  # fmt: skip
    if SIGHT_DIFFERS or MASK_KIND != NO_MASK:  # noqa: SIM102
        # A hidden key has weight 0, and 0 · NaN is NaN: where one may have leaked, all is done again with care.
        if tl.max(tl.max((~is_finite(average)).to(tl.int32), 1), 0) > 0:
            average, total, top = nothing(TILE_ROWS, PADDED_V)
            average, total, top = attend(
                average, total, top, q_tile, k_head, v_head, k_tiles, v_tiles, b, kv_head, table_row, start, stop,
                is_query, query_at, mask_rows, slope, scale, softcap, hidden, window,
                k_stride_b, k_stride_t, k_stride_d, v_stride_b, v_stride_t, v_stride_d, mask_stride_k,
                HEAD_DIM, D_V, PADDED_D, PADDED_V, 16, PAGE_SIZE, SIGHT_DIFFERS, HAS_WINDOW, HAS_SOFTCAP, HAS_ALIBI,
                MASK_KIND, False, UPCAST, True,
            )  # fmt: skip

    some = tl.where(total == 0.0, 1.0, total)
    part_64, component = part.to(tl.int64), tl.arange(0, PADDED_V)
    offset = part_64 * averages_stride_part + b_64 * averages_stride_b
    offset = offset + head * averages_stride_h + query_64 * averages_stride_t
    tl.store(
        averages + offset[:, None] + component[None, :],
        average / some[:, None],
        mask=is_row[:, None] & (component < D_V)[None, :],
    )
    offset = part_64 * lses_stride_part + b_64 * lses_stride_b + head * lses_stride_h + query_64 * lses_stride_t
    tl.store(lses + offset, tl.where(total == 0.0, float("-inf"), (top + tl.log2(some)) * LN2), mask=is_row)


@triton.jit
def sizes_of(b, t_q, t_kv, lengths, new_rows, HAS_LENGTHS: tl.constexpr, HAS_NEW_ROWS: tl.constexpr):
    """How many queries and keys sequence b has: its own numbers, or those of all."""
    if HAS_NEW_ROWS:
        t_q = tl.load(new_rows + b).to(tl.int32)
    if HAS_LENGTHS:
        t_kv = tl.load(lengths + b).to(tl.int32)
    return t_q, t_kv


@triton.jit
def first_in_sight(t_q, t_kv, window, HAS_WINDOW: tl.constexpr):
    """The first key that some query sees: with a window, what its first query sees; the last one is the newest key."""
    first = 0
    if HAS_WINDOW:
        first = tl.maximum(t_kv - tl.maximum(t_q, 1) - window + 1, 0)
    return first
