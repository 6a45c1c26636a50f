"""Before the backward pass: what each query needs to know about its own softmax, two numbers.

    lse    the log-sum-exp in base 2; +inf where a query saw nothing, so that every 2^(score − lse) of it is 0
    delta  Σ d_out · out − d_lse: the sum over a row of weight · d_weight, without the weights

and what a sink gets from each query: −exp(sink − lse) · delta. Dao et al. 2022 (algorithm 4).
"""

# Functions of Triton have no types to check: what a parameter holds is said beside it.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.tiles import LOG2E, load_tile


@triton.jit
def rows_kernel(
    out, out_stride_b, out_stride_h, out_stride_t,  # (b, n_heads, t_q, d_v)
    d_out, d_out_stride_b, d_out_stride_h, d_out_stride_t,
    lse, lse_stride_b, lse_stride_h, lse_stride_t,  # (b, n_heads, t_q), natural
    d_lse, d_lse_stride_b, d_lse_stride_h, d_lse_stride_t,  # or None
    row_lse, row_delta,  # (b, n_heads, t_q) float32: written
    sinks, sink_stride_h,  # (n_heads,), or None
    sink_parts,  # (b, n_heads, q_tiles) float32: written, or None
    t_q, n_heads, q_tiles,
    D_V: tl.constexpr, VALUE_TILE: tl.constexpr, TILE_Q: tl.constexpr,
    HAS_D_LSE: tl.constexpr, NEEDS_SINKS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head. Packed queries are one long sequence here, b = 1."""
    program = tl.program_id(0)
    tile = program % q_tiles
    head = (program // q_tiles % n_heads).to(tl.int64)
    sequence = (program // q_tiles // n_heads).to(tl.int64)
    rows = tile * TILE_Q + tl.arange(0, TILE_Q)
    there = rows < t_q

    out += sequence * out_stride_b + head * out_stride_h
    out_tile = load_tile(out, rows, t_q, out_stride_t, 1, D_V, VALUE_TILE, True, UPCAST)  # (TILE_Q, VALUE_TILE)
    d_out += sequence * d_out_stride_b + head * d_out_stride_h
    d_out_tile = load_tile(d_out, rows, t_q, d_out_stride_t, 1, D_V, VALUE_TILE, True, UPCAST)
    delta = tl.sum(out_tile.to(tl.float32) * d_out_tile.to(tl.float32), axis=1)  # (TILE_Q,)
    if HAS_D_LSE:
        d_lse += sequence * d_lse_stride_b + head * d_lse_stride_h
        delta -= tl.load(d_lse + rows.to(tl.int64) * d_lse_stride_t, mask=there, other=0.0).to(tl.float32)

    lse += sequence * lse_stride_b + head * lse_stride_h
    natural = tl.load(lse + rows.to(tl.int64) * lse_stride_t, mask=there, other=float("-inf"))
    saw_nothing = natural == float("-inf")
    binary = tl.where(saw_nothing, float("inf"), natural * LOG2E)
    place = (sequence * n_heads + head) * t_q + rows
    tl.store(row_lse + place, binary, mask=there)
    tl.store(row_delta + place, delta, mask=there)

    if NEEDS_SINKS:
        weight = tl.exp2(tl.load(sinks + head * sink_stride_h) * LOG2E - binary)
        part = tl.sum(tl.where(saw_nothing, 0.0, -weight * delta), axis=0)
        tl.store(sink_parts + (sequence * n_heads + head) * q_tiles + tile, part)
