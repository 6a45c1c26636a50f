"""Attention of one tile of rows to a stretch of keys: what a program of the decoding kernel does most of its time.

Two ways to read a tile of keys. By descriptor (TMA, from Hopper on) one instruction copies it whole: the addresses take
no registers, and the memory has one table entry to wait for, not one for each key. By pointers each row has an address
of its own: for older cards, keys that lie anyhow, pages that are smaller than a tile, and the keys at an end of a page
whose free places are not to be read. Both give the same bits: the same tiles are multiplied in the same order.
"""

# Bodies of kernels are Triton, which has no types to check: Any throughout.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.decode.containment import contained
from attnbook.kernels.tiles import NO_MASK, hide, in_sight, load_mask, offset, score_tile


@triton.jit
def nothing(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """What `attend` begins with: the average, total and largest score of no keys."""
    average = tl.zeros((ROWS, COLUMNS), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    return average, total, tl.full((ROWS,), float("-inf"), tl.float32)


@triton.jit
def attend(
    average,  # (TILE_ROWS, PADDED_V), of the keys before: not yet divided by total
    total,  # (TILE_ROWS,)
    top,  # (TILE_ROWS,)
    q_tile,  # (TILE_ROWS, PADDED_D)
    k,  # the first key of this head: of the first sequence, or page
    v,
    k_tiles,  # descriptors of all heads and sequences, or pages
    v_tiles,
    b,
    kv_head,
    table_row,  # the pages of this sequence
    start,  # the keys to be read: with descriptors a multiple of TILE_K
    stop,
    is_query,  # (TILE_ROWS, 1): is this row a query of this sequence?
    query_at,  # (TILE_ROWS, 1): at which key it stands
    mask_rows,  # (TILE_ROWS, 1): where its mask begins
    slope,  # (TILE_ROWS, 1)
    scale,
    softcap,
    hidden,
    window,
    k_stride_b,
    k_stride_t,
    k_stride_d,
    v_stride_b,
    v_stride_t,
    v_stride_d,
    mask_stride_k,
    HEAD_DIM: tl.constexpr,
    D_V: tl.constexpr,
    PADDED_D: tl.constexpr,
    PADDED_V: tl.constexpr,
    TILE_K: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    SIGHT_DIFFERS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    MASK_KIND: tl.constexpr,
    HAS_DESCRIPTORS: tl.constexpr,
    UPCAST: tl.constexpr,
    CAREFUL: tl.constexpr,  # keep what is not finite from rows that may not see it
):
    """For each row: Σ weight · v, Σ weight, and the largest score (base 2), with keys `start` to `stop` − 1 added."""
    for tile_start in tl.range(start, stop, TILE_K, num_stages=1 if CAREFUL else None):
        key = tile_start + tl.arange(0, TILE_K)  # (TILE_K,)
        is_key = key < stop
        if HAS_DESCRIPTORS:
            block, place = place_of(tile_start, tile_start < stop, b, table_row, PAGE_SIZE)  # of the whole tile
            k_tile = copy_tile(k_tiles, block, kv_head, place, TILE_K, PADDED_D, UPCAST)  # (TILE_K, PADDED_D)
            v_tile = copy_tile(v_tiles, block, kv_head, place, TILE_K, PADDED_V, UPCAST)  # (TILE_K, PADDED_V)
        else:
            blocks, places = place_of(key, is_key, b, table_row, PAGE_SIZE)  # (TILE_K,) each
            k_offset, v_offset = offset(blocks, k_stride_b), offset(blocks, v_stride_b)
            k_offset, v_offset = k_offset + offset(places, k_stride_t), v_offset + offset(places, v_stride_t)
            k_tile = load_rows(k, k_offset, is_key, k_stride_d, HEAD_DIM, PADDED_D, UPCAST)  # (TILE_K, PADDED_D)
            v_tile = load_rows(v, v_offset, is_key, v_stride_d, D_V, PADDED_V, UPCAST)  # (TILE_K, PADDED_V)

        key_at = key[None, :]
        seen = is_query & in_sight(query_at, key_at, stop, window, SIGHT_DIFFERS, SIGHT_DIFFERS and HAS_WINDOW)
        added = 0.0
        if MASK_KIND != NO_MASK:
            through, added = load_mask(mask_rows + key_at.to(tl.int64) * mask_stride_k, seen, hidden, MASK_KIND)
            seen = seen & through
        product = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee")  # (TILE_ROWS, TILE_K)
        score, _ = score_tile(
            product, query_at, key_at, scale, softcap, slope, added, HAS_SOFTCAP, HAS_ALIBI, MASK_KIND != NO_MASK
        )
        score = hide(score, seen)

        new_top = tl.maximum(top, tl.max(score, 1))
        origin = tl.where(new_top == float("-inf"), 0.0, new_top)  # −inf − −inf would be NaN
        weight = tl.exp2(score - origin[:, None])
        shrunk = tl.exp2(top - origin)
        total = total * shrunk + tl.sum(weight, 1)
        average = average * shrunk[:, None]
        top = new_top
        if CAREFUL:
            average = contained(average, weight, v_tile, seen)
        else:
            average = tl.dot(weight.to(v_tile.dtype), v_tile, average, input_precision="ieee")
    return average, total, top


@triton.jit
def place_of(key, is_key, b, table_row, PAGE_SIZE: tl.constexpr):
    """The page in which each key lies and its place there; without pages the sequence and the key's number. int32."""
    if PAGE_SIZE:
        block = tl.load(table_row + key // PAGE_SIZE, mask=is_key, other=0).to(tl.int32)
        place = key % PAGE_SIZE
    else:
        block = b
        place = key
    return block, place


@triton.jit
def copy_tile(tiles, block, kv_head, place, ROWS: tl.constexpr, COLUMNS: tl.constexpr, UPCAST: tl.constexpr):
    """A tile (ROWS, COLUMNS) by descriptor: what is beyond the last key, component or page is 0, and not read."""
    tile = tl.reshape(tiles.load([block, kv_head, place, 0]), (ROWS, COLUMNS))
    if UPCAST:
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def load_rows(
    start, offset, is_there, component_stride, COMPONENTS: tl.constexpr, PADDED: tl.constexpr, UPCAST: tl.constexpr
):
    """Rows that begin at these offsets (ROWS,), as a tile (ROWS, PADDED): 0 where there is none."""
    component = tl.arange(0, PADDED)
    pointers = start + offset[:, None] + component[None, :].to(tl.int64) * component_stride
    inside = is_there[:, None]
    if COMPONENTS != PADDED:
        inside = inside & (component < COMPONENTS)[None, :]
    tile = tl.load(pointers, mask=inside, other=0.0)
    if UPCAST:
        tile = tile.to(tl.float32)
    return tile
