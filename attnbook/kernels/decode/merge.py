"""The kernel that makes one result of the parts: their averages, weighted by what their scores add up to.

    top     = max of the parts' lse, and of the sink
    share   = exp(lse of the part − top)
    total   = Σ share + exp(sink − top)
    average = Σ share · average of the part / total          lse = top + log total

No exponent is above 0, so nothing overflows. Where there is nothing, there is nothing: a part without keys has lse −inf
and is not read, and two of them merge to an average of 0 and lse −inf. The sink, one more score without a value, is in
no part and is added here, once. Milakov and Gimelshein 2018; Dao et al. 2023 (Flash-Decoding).
"""

# Bodies of kernels are Triton, which has no types to check: Any throughout.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.decode.split import first_in_sight, sizes_of
from attnbook.kernels.tiles import rounded


@triton.jit
def merge_kernel(
    averages,  # (parts, b, n_heads, t_q, d_v)
    lses,  # (parts, b, n_heads, t_q), natural
    sinks,  # (n_heads,), float32
    lengths,  # (b,): keys of each sequence
    new_rows,  # (b,): queries of each sequence
    out,  # (b, n_heads, t_q, d_v), contiguous: to be written
    lse,  # (b, n_heads, t_q), contiguous: to be written
    window,
    t_q,
    n_heads,
    parts,
    averages_stride_part,
    averages_stride_b,
    averages_stride_h,
    averages_stride_t,
    averages_stride_d,
    lses_stride_part,
    lses_stride_b,
    lses_stride_h,
    lses_stride_t,
    sink_stride_h,
    D_V: tl.constexpr,
    PADDED_V: tl.constexpr,  # the power of two to which D_V is filled
    SPLIT: tl.constexpr,  # keys of a split; only read where there are lengths
    TILE_PARTS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_LENGTHS: tl.constexpr,
    HAS_NEW_ROWS: tl.constexpr,
    UPCAST: tl.constexpr,  # the interpreter cuts bfloat16 off: round it
):
    """One program for each row of the result. Where sequences have lengths, it reads the parts of its own sequence."""
    program = tl.program_id(0)
    query = program % t_q
    head = program // t_q % n_heads
    b = program // t_q // n_heads
    if HAS_LENGTHS:
        own_t_q, own_t_kv = sizes_of(b, t_q, 0, lengths, new_rows, HAS_LENGTHS, HAS_NEW_ROWS)
        first = first_in_sight(own_t_q, own_t_kv, window, HAS_WINDOW)
        parts = tl.cdiv(own_t_kv, SPLIT) - first // SPLIT

    b_64, head_64, query_64 = b.to(tl.int64), head.to(tl.int64), query.to(tl.int64)
    averages += b_64 * averages_stride_b + head_64 * averages_stride_h + query_64 * averages_stride_t
    lses += b_64 * lses_stride_b + head_64 * lses_stride_h + query_64 * lses_stride_t
    component = tl.arange(0, PADDED_V)
    sink = tl.full((), float("-inf"), tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks + head_64 * sink_stride_h)
        if HAS_NEW_ROWS:
            sink = tl.where(query < own_t_q, sink, float("-inf"))  # a row that is none has no sink either

    top = sink
    for start in tl.range(0, parts, TILE_PARTS):
        part = start + tl.arange(0, TILE_PARTS)  # (TILE_PARTS,)
        part_lse = tl.load(lses + part.to(tl.int64) * lses_stride_part, mask=part < parts, other=float("-inf"))
        top = tl.maximum(top, tl.max(part_lse, 0))
    origin = tl.where(top == float("-inf"), 0.0, top)  # −inf − −inf would be NaN

    total = tl.exp(sink - origin)
    average = tl.zeros((PADDED_V,), tl.float32)
    for start in tl.range(0, parts, TILE_PARTS):
        part = start + tl.arange(0, TILE_PARTS)
        part_lse = tl.load(lses + part.to(tl.int64) * lses_stride_part, mask=part < parts, other=float("-inf"))
        share = tl.exp(part_lse - origin)
        offset = part[:, None].to(tl.int64) * averages_stride_part + component[None, :].to(tl.int64) * averages_stride_d
        inside = (part_lse != float("-inf"))[:, None] & (component < D_V)[None, :]
        of_part = tl.load(averages + offset, mask=inside, other=0.0).to(tl.float32)  # (TILE_PARTS, PADDED_V)
        total += tl.sum(share, 0)
        average += tl.sum(share[:, None] * of_part, 0)

    nothing = total == 0.0
    some = tl.where(nothing, 1.0, total)
    row_64 = program.to(tl.int64)
    result = rounded(average / some, out.dtype.element_ty, UPCAST)
    tl.store(out + row_64 * D_V + component, result, mask=component < D_V)
    tl.store(lse + row_64, tl.where(nothing, float("-inf"), top + tl.log(some)))
