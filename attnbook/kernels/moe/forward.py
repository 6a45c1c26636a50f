"""The kernels of the forward pass: gate and up with SwiGLU in one product, down, and the sum over a token's experts.

    x (t, d) ──▶ gate_up_kernel ──▶ hidden (n, f) ──▶ down_kernel ──▶ out (n, d) ──▶ combine_kernel ──▶ y (t, d)
                 rows by token      sorted rows       sorted rows                    k rows a token

n = t · k. One launch holds the products of all experts, whatever their numbers of rows. Tokens are never copied into
sorted order: a tile of rows reads each from where it is. Each program's row tile is worked out in `tiles`. Products are
added up in float32.
"""

# Bodies of kernels are Triton, which has no types to check.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.moe.tiles import expert_of, load_matrix, load_rows, rows_of, store_rows


@triton.jit
def gate_up_kernel(
    x, token, row_bounds, tile_bounds, w_gate, w_up, hidden,
    stride_x, stride_expert, stride_d, stride_f, n_experts, d, f, n_row_tiles,
    TILE_ROWS: tl.constexpr, TILE_F: tl.constexpr, STEP_D: tl.constexpr, EXPERTS: tl.constexpr,
    GROUP: tl.constexpr, DESCRIPTORS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Fills hidden (n, f) = silu(x w_gate) · x w_up of each sorted row; x (t, d), w_gate and w_up (e, d, f)."""
    n_f_tiles = tl.cdiv(f, TILE_F)
    program = tl.program_id(0)
    row_tile, f_tile = tl.swizzle2d(program // n_f_tiles, program % n_f_tiles, n_row_tiles, n_f_tiles, GROUP)
    expert = expert_of(row_tile, tile_bounds, n_experts, EXPERTS)
    if expert >= n_experts:
        return
    row, real = rows_of(row_tile, expert, row_bounds, tile_bounds, TILE_ROWS)  # (TILE_ROWS,)
    from_token = tl.load(token + row, mask=real, other=0).to(tl.int64)
    first_f = f_tile * TILE_F

    gate = tl.zeros((TILE_ROWS, TILE_F), dtype=tl.float32)
    up = tl.zeros((TILE_ROWS, TILE_F), dtype=tl.float32)
    for first_d in range(0, d, STEP_D):
        part = load_rows(x, from_token, real, first_d, d, stride_x, STEP_D, UPCAST)  # (TILE_ROWS, STEP_D)
        of_gate = load_matrix(w_gate, expert, first_d, first_f, d, f, stride_expert, stride_d, stride_f,
                              STEP_D, TILE_F, DESCRIPTORS, UPCAST)  # fmt: skip
        of_up = load_matrix(w_up, expert, first_d, first_f, d, f, stride_expert, stride_d, stride_f,
                            STEP_D, TILE_F, DESCRIPTORS, UPCAST)  # fmt: skip
        gate = tl.dot(part, of_gate, gate, input_precision="ieee")
        up = tl.dot(part, of_up, up, input_precision="ieee")
    store_rows(gate * tl.sigmoid(gate) * up, hidden, row, real, first_f, f, TILE_F, UPCAST)


@triton.jit
def down_kernel(
    hidden, row_bounds, tile_bounds, w_down, out,
    stride_expert, stride_f, stride_d, n_experts, d, f, n_row_tiles,
    TILE_ROWS: tl.constexpr, TILE_D: tl.constexpr, STEP_F: tl.constexpr, EXPERTS: tl.constexpr,
    GROUP: tl.constexpr, DESCRIPTORS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Fills out (n, d) = hidden (n, f) w_down (e, f, d), each sorted row by its own expert."""
    n_d_tiles = tl.cdiv(d, TILE_D)
    program = tl.program_id(0)
    row_tile, d_tile = tl.swizzle2d(program // n_d_tiles, program % n_d_tiles, n_row_tiles, n_d_tiles, GROUP)
    expert = expert_of(row_tile, tile_bounds, n_experts, EXPERTS)
    if expert >= n_experts:
        return
    row, real = rows_of(row_tile, expert, row_bounds, tile_bounds, TILE_ROWS)  # (TILE_ROWS,)
    first_d = d_tile * TILE_D

    total = tl.zeros((TILE_ROWS, TILE_D), dtype=tl.float32)
    for first_f in range(0, f, STEP_F):
        part = load_rows(hidden, row, real, first_f, f, f, STEP_F, UPCAST)  # (TILE_ROWS, STEP_F)
        of_down = load_matrix(w_down, expert, first_f, first_d, f, d, stride_expert, stride_f, stride_d,
                              STEP_F, TILE_D, DESCRIPTORS, UPCAST)  # fmt: skip
        total = tl.dot(part, of_down, total, input_precision="ieee")
    store_rows(total, out, row, real, first_d, d, TILE_D, UPCAST)


@triton.jit
def combine_kernel(
    out, place, weights, y, t, d, top_k,
    TILE_TOKENS: tl.constexpr, TILE_D: tl.constexpr, WEIGHTED: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Fills y (t, d) = Σ over a token's slots of weight · the slot's row of out (n, d); a dropped slot gives 0.

    Always added up in the order of the slots, in float32. Without WEIGHTED every weight is 1: so the gradients of a
    token come together. place and weights (t, k) are contiguous.
    """
    token = (tl.program_id(0) * TILE_TOKENS + tl.arange(0, TILE_TOKENS)).to(tl.int64)
    first_d = tl.program_id(1) * TILE_D
    there = token < t
    total = tl.zeros((TILE_TOKENS, TILE_D), dtype=tl.float32)
    for slot in range(top_k):
        row = tl.load(place + token * top_k + slot, mask=there, other=-1).to(tl.int64)  # (TILE_TOKENS,)
        kept = row >= 0
        part = load_rows(out, row, kept, first_d, d, d, TILE_D, UPCAST).to(tl.float32)  # (TILE_TOKENS, TILE_D)
        if WEIGHTED:
            weight = tl.load(weights + token * top_k + slot, mask=kept, other=0.0)
            part = part * weight[:, None]
        total += part
    store_rows(total, y, token, there, first_d, d, TILE_D, UPCAST)
