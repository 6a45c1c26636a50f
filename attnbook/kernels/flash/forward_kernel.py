"""Attention forward: one program takes one tile of queries past the tiles of keys that some of them may see.

For every row of its tile a program keeps three things while it walks over the keys: `top`, the largest score so far,
`total`, the sum of 2^(score − top), and `average`, the sum of 2^(score − top) · v. A tile of keys with a larger score
makes what was summed before smaller, by 2^(old top − new top). In the end average / total is the output and
top + log₂ total the log-sum-exp: a row of scores never exists as a whole.

What stands out:

- The walk has parts: first the tiles that every row sees whole, then those at the edges (the diagonal, the far end of
  the window, the last keys). Only the second part pays for hiding, and tiles that no row sees are in none.
- Query heads share keys by a division: head h reads key head h // group, and nothing is repeated in memory.
- A NaN in a value that a query may not see must not reach it, and 0 · NaN is NaN. The first launch does not care. A
  second one (AGAIN), of small tiles, looks at what was written, and does again, slowly and carefully, what holds a NaN.

Milakov and Gimelshein 2018; Dao et al. 2022 (algorithm 1); Dao 2023 (algorithm 1).
"""

# Functions of Triton have no types to check: what a parameter holds is said beside it.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.tiles import (
    FLOATS,
    LN2,
    LOG2E,
    NO_MASK,
    hide,
    in_sight,
    load_mask,
    load_rows,
    load_tile,
    offset,
    score_tile,
    store_tile,
)

WHOLE: tl.constexpr = tl.constexpr(0)
EDGES: tl.constexpr = tl.constexpr(1)
"""The parts of a walk, in order."""


@triton.jit
def forward_kernel(
    q, q_stride_b, q_stride_h, q_stride_t, q_stride_d,  # (b, n_heads, t_q, d)
    k, k_stride_b, k_stride_h, k_stride_t, k_stride_d,  # (b, n_kv_heads, t_kv, d)
    v, v_stride_b, v_stride_h, v_stride_t, v_stride_d,  # (b, n_kv_heads, t_kv, d_v)
    k_tiles, v_tiles,  # descriptors of k and v, or None
    out, out_stride_b, out_stride_h, out_stride_t, out_stride_d,  # (b, n_heads, t_q, d_v)
    lse, lse_stride_b, lse_stride_h, lse_stride_t,  # (b, n_heads, t_q)
    mask, mask_stride_b, mask_stride_h, mask_stride_q, mask_stride_k,  # (b, n_heads, t_q, t_kv), or None
    slopes, slope_stride_b, slope_stride_h,  # (b, n_heads), or None
    sinks, sink_stride_h,  # (n_heads,), or None
    cu_q, cu_k,  # (sequences + 1,): where packed sequences start, or None
    t_q, t_kv, n_heads, group, q_tiles,
    window, scale, softcap, hidden,  # as `in_sight`, `score_tile` and `load_mask` take them
    HEAD_DIM: tl.constexpr, D_V: tl.constexpr,  # components of a row of k and of v …
    HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,  # … and of a tile: the next power of two
    TILE_Q: tl.constexpr, TILE_K: tl.constexpr,  # rows of a tile
    IS_VARLEN: tl.constexpr, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr, HAS_SINKS: tl.constexpr, MASK_KIND: tl.constexpr,
    HAS_DESCRIPTORS: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, AGAIN: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Write out and lse of TILE_Q queries of one head of one sequence."""
    # Which tile of which head of which sequence: late tiles first, since causal ones have the most keys.
    program = tl.program_id(0)
    tile = q_tiles - 1 - program % q_tiles
    head = program // q_tiles % n_heads
    kv_head = head // group
    sequence = program // q_tiles // n_heads
    q += offset(sequence, q_stride_b) + offset(head, q_stride_h)
    k += offset(sequence, k_stride_b) + offset(kv_head, k_stride_h)
    v += offset(sequence, v_stride_b) + offset(kv_head, v_stride_h)
    out += offset(sequence, out_stride_b) + offset(head, out_stride_h)
    lse += offset(sequence, lse_stride_b) + offset(head, lse_stride_h)
    if MASK_KIND != NO_MASK:
        mask += offset(sequence, mask_stride_b) + offset(head, mask_stride_h)
    batch, first_k = sequence, 0  # where a descriptor finds the sequence; all packed ones lie in one batch
    if IS_VARLEN:
        batch = 0
        first_q, first_k = tl.load(cu_q + sequence), tl.load(cu_k + sequence)
        t_q, t_kv = tl.load(cu_q + sequence + 1) - first_q, tl.load(cu_k + sequence + 1) - first_k
        q += offset(first_q, q_stride_t)
        k += offset(first_k, k_stride_t)
        v += offset(first_k, v_stride_t)
        out += offset(first_q, out_stride_t)
        lse += offset(first_q, lse_stride_t)
        if MASK_KIND != NO_MASK:
            mask += offset(first_q, mask_stride_q) + offset(first_k, mask_stride_k)
        if tile * TILE_Q >= t_q:
            return

    # The queries, and at which key each stands.
    rows = tile * TILE_Q + tl.arange(0, TILE_Q)  # (TILE_Q,)
    query_at = rows[:, None] + (t_kv - t_q)  # (TILE_Q, 1)
    if AGAIN:
        written = load_tile(out, rows, t_q, out_stride_t, out_stride_d, D_V, VALUE_TILE, True, UPCAST)
        if tl.max((written != written).to(tl.int32)) == 0:
            return
    q_tile = load_tile(q, rows, t_q, q_stride_t, q_stride_d, HEAD_DIM, HEAD_TILE, True, UPCAST)  # (TILE_Q, HEAD_TILE)
    slope = tl.load(slopes + offset(sequence, slope_stride_b) + offset(head, slope_stride_h)) if HAS_ALIBI else 0.0

    # Keys from `begin` up to `end` are seen by some row; from `whole_begin` up to `whole_end`, in whole tiles, by all.
    earliest = tile * TILE_Q + t_kv - t_q
    latest = tl.minimum((tile + 1) * TILE_Q, t_q) - 1 + t_kv - t_q
    begin, whole_begin, whole_end, end = 0, 0, t_kv // TILE_K * TILE_K, t_kv
    if IS_CAUSAL:
        end = tl.maximum(tl.minimum(t_kv, latest + 1), 0)
        whole_end = tl.maximum(tl.minimum(t_kv, earliest + 1), 0) // TILE_K * TILE_K
    if HAS_WINDOW:
        begin = tl.maximum(earliest - window + 1, 0) // TILE_K * TILE_K
        whole_begin = tl.cdiv(tl.maximum(latest - window + 1, 0), TILE_K) * TILE_K
        whole_end = tl.maximum(whole_begin, whole_end)
    if MASK_KIND != NO_MASK or AGAIN:  # a mask may hide anything
        whole_end = whole_begin

    # Before the first key. A sink is a key that all have seen, without a value.
    sink = tl.load(sinks + offset(head, sink_stride_h)) * LOG2E if HAS_SINKS else float("-inf")
    top = tl.full((TILE_Q,), 0.0, tl.float32) + sink  # (TILE_Q,)
    total = tl.where(top == float("-inf"), 0.0, 1.0)  # (TILE_Q,)
    average = tl.zeros((TILE_Q, VALUE_TILE), tl.float32)

    for part in tl.static_range(WHOLE if MASK_KIND == NO_MASK and not AGAIN else EDGES, EDGES + 1):
        first, last, jump = whole_begin, whole_end, 0
        if part == EDGES:  # whole tiles are jumped over
            jump = whole_end - whole_begin
            first, last = begin, end - jump
        for at in tl.range(first, last, TILE_K, warp_specialize=WARP_SPECIALIZE):
            key = at
            if part == EDGES:
                key = tl.where(at < whole_begin, at, at + jump)
            keys = key + tl.arange(0, TILE_K)  # (TILE_K,)
            key_at = keys[None, :]  # (1, TILE_K)

            # Which pairs are seen. A tile is visited unless a mask hides all of it.
            seen, added, visited = True, 0.0, True
            if part != WHOLE:
                seen = in_sight(query_at, key_at, t_kv, window, IS_CAUSAL, HAS_WINDOW)  # (TILE_Q, TILE_K)
            if MASK_KIND != NO_MASK:
                pointers = mask + (offset(rows[:, None], mask_stride_q) + offset(keys[None, :], mask_stride_k))
                inside = (rows[:, None] < t_q) & (key_at < t_kv)
                shown, added = load_mask(pointers, inside, hidden, MASK_KIND)  # (TILE_Q, TILE_K) each
                seen = shown & seen
                visited = tl.max(tl.max(seen.to(tl.int32), 1), 0) == 1
            if visited:
                k_tile = load_rows(
                    k, keys, t_kv, k_stride_t, k_stride_d, k_tiles, batch, kv_head, first_k + key,
                    HEAD_DIM, HEAD_TILE, part != WHOLE, HAS_DESCRIPTORS, UPCAST,
                )  # (TILE_K, HEAD_TILE)  # fmt: skip
                product = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee")  # (TILE_Q, TILE_K)
                score, _ = score_tile(
                    product, query_at, key_at, scale, softcap, slope, added, HAS_SOFTCAP, HAS_ALIBI, MASK_KIND == FLOATS
                )
                if part != WHOLE or MASK_KIND != NO_MASK:
                    score = hide(score, seen)

                # The tops may rise; a row that has seen nothing yet has −inf, which cannot be taken from itself.
                new_top = tl.maximum(top, tl.max(score, 1))
                base = tl.where(new_top == float("-inf"), 0.0, new_top)
                weight = tl.exp2(score - base[:, None])  # (TILE_Q, TILE_K)
                shrink = tl.exp2(top - base)
                top = new_top
                total = total * shrink + tl.sum(weight, 1)
                average = average * shrink[:, None]

                v_tile = load_rows(
                    v, keys, t_kv, v_stride_t, v_stride_d, v_tiles, batch, kv_head, first_k + key,
                    D_V, VALUE_TILE, part != WHOLE, HAS_DESCRIPTORS, UPCAST,
                )  # (TILE_K, VALUE_TILE)  # fmt: skip
                if AGAIN:
                    average = add_what_is_not_finite(
                        average, weight, seen, v, keys, key, v_stride_t, v_stride_d, t_kv, D_V, VALUE_TILE
                    )
                    v_tile = tl.where(tl.abs(v_tile) < float("inf"), v_tile, 0.0)
                average = tl.dot(weight.to(v_tile.dtype), v_tile, average, input_precision="ieee")

    some = tl.where(total == 0, 1.0, total)  # a row that has seen nothing: 0 / 1, and −inf + log₂ 1
    store_tile(out, rows, t_q, out_stride_t, out_stride_d, average / some[:, None], D_V, VALUE_TILE, UPCAST)
    tl.store(lse + offset(rows, lse_stride_t), (top + tl.log2(some)) * LN2, mask=rows < t_q)


@triton.jit
def add_what_is_not_finite(
    average, weight, seen,  # (TILE_Q, VALUE_TILE), (TILE_Q, TILE_K), (TILE_Q, TILE_K)
    v, keys, key, v_stride_t, v_stride_d, t_kv, D_V: tl.constexpr, VALUE_TILE: tl.constexpr,
):  # fmt: skip
    """The average with each NaN and inf of a tile of values, in the rows that may see its key: one key at a time."""
    components = tl.arange(0, VALUE_TILE)
    for one in range(key, tl.minimum(key + keys.shape[0], t_kv)):
        row = one + tl.zeros((VALUE_TILE,), tl.int32)
        value = tl.load(v + offset(row, v_stride_t) + offset(components, v_stride_d), components < D_V, 0.0)
        value = value.to(tl.float32)
        endless = tl.where(tl.abs(value) < float("inf"), 0.0, value)  # (VALUE_TILE,)
        if tl.max((endless != 0.0).to(tl.int32), 0) == 1:
            its = keys[None, :] == one  # (1, TILE_K)
            share = tl.sum(tl.where(its, weight, 0.0), 1)[:, None]  # (TILE_Q, 1)
            sees = tl.max((its & seen).to(tl.int32), 1)[:, None] == 1
            average += tl.where(sees, share * endless[None, :], 0.0)
    return average
