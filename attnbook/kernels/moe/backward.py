"""The kernels of the backward pass: nothing of the forward pass was kept, so gate and up are calculated again.

    dy (t, d), x (t, d) ──▶ hidden_gradient_kernel ──▶ d_gate, d_up, hidden (n, f), and parts of d_weights
    d_gate, d_up (n, f) ──▶ token_gradient_kernel  ──▶ rows (n, d) ──▶ combine_kernel ──▶ dx (t, d)
    two matrices of rows ─▶ matrix_gradient_kernel ──▶ dw_gate, dw_up (e, d, f) or dw_down (e, f, d)

Every sum has one order: the parts of d_weights are added up by torch, one for each tile of f, and an expert's
gradients by one program that goes through all its rows. An expert without rows writes the zeros that it began with.
"""

# Bodies of kernels are Triton, which has no types to check.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.moe.tiles import (
    expert_of,
    load_matrix,
    load_rows,
    rows_of,
    store_rows,
)


@triton.jit
def hidden_gradient_kernel(
    x, grad_y, order, token, weights, row_bounds, tile_bounds, w_gate, w_up, w_down,
    d_gate, d_up, hidden, d_weight_parts,
    stride_x, stride_grad_y, stride_expert, stride_d, stride_f, stride_down_expert, stride_down_f, stride_down_d,
    n_experts, n, d, f, n_row_tiles,
    TILE_ROWS: tl.constexpr, TILE_F: tl.constexpr, STEP_D: tl.constexpr, EXPERTS: tl.constexpr,
    GROUP: tl.constexpr, DESCRIPTORS: tl.constexpr, UPCAST: tl.constexpr, NEEDS_HIDDEN: tl.constexpr,
):  # fmt: skip
    """The gradients of gate and up, (n, f), of each sorted row; its weight · hidden with NEEDS_HIDDEN.

    d_weight_parts (f tiles, n) float32: this tile's share of Σ d_hidden · hidden, the gradient of the row's weight.
    """
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
    d_hidden = tl.zeros((TILE_ROWS, TILE_F), dtype=tl.float32)  # for a weight of 1
    for first_d in range(0, d, STEP_D):
        part = load_rows(x, from_token, real, first_d, d, stride_x, STEP_D, UPCAST)  # (TILE_ROWS, STEP_D)
        d_part = load_rows(grad_y, from_token, real, first_d, d, stride_grad_y, STEP_D, UPCAST)
        of_gate = load_matrix(w_gate, expert, first_d, first_f, d, f, stride_expert, stride_d, stride_f,
                              STEP_D, TILE_F, DESCRIPTORS, UPCAST)  # fmt: skip
        of_up = load_matrix(w_up, expert, first_d, first_f, d, f, stride_expert, stride_d, stride_f,
                            STEP_D, TILE_F, DESCRIPTORS, UPCAST)  # fmt: skip
        of_down = load_matrix(w_down, expert, first_f, first_d, f, d, stride_down_expert, stride_down_f, stride_down_d,
                              TILE_F, STEP_D, DESCRIPTORS, UPCAST)  # fmt: skip
        gate = tl.dot(part, of_gate, gate, input_precision="ieee")
        up = tl.dot(part, of_up, up, input_precision="ieee")
        d_hidden = tl.dot(d_part, tl.trans(of_down), d_hidden, input_precision="ieee")

    weight = tl.load(weights + tl.load(order + row, mask=real, other=0), mask=real, other=0.0)[:, None]
    sigma = tl.sigmoid(gate)
    silu = gate * sigma
    share = tl.sum(d_hidden * silu * up, 1)  # (TILE_ROWS,)
    tl.store(d_weight_parts + f_tile.to(tl.int64) * n + row, share, mask=real)
    if NEEDS_HIDDEN:
        store_rows(weight * silu * up, hidden, row, real, first_f, f, TILE_F, UPCAST)
    d_hidden = d_hidden * weight
    store_rows(d_hidden * silu, d_up, row, real, first_f, f, TILE_F, UPCAST)
    slope = sigma + silu * (1.0 - sigma)  # silu′(z) = σ(z) + z σ(z) (1 − σ(z))
    store_rows(d_hidden * up * slope, d_gate, row, real, first_f, f, TILE_F, UPCAST)


@triton.jit
def token_gradient_kernel(
    d_gate, d_up, row_bounds, tile_bounds, w_gate, w_up, out,
    stride_expert, stride_d, stride_f, n_experts, d, f, n_row_tiles,
    TILE_ROWS: tl.constexpr, TILE_D: tl.constexpr, STEP_F: tl.constexpr, EXPERTS: tl.constexpr,
    GROUP: tl.constexpr, DESCRIPTORS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """The rows (n, d) = d_gate w_gateᵀ + d_up w_upᵀ of each sorted row: what it adds to its token's gradient."""
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
        part_gate = load_rows(d_gate, row, real, first_f, f, f, STEP_F, UPCAST)  # (TILE_ROWS, STEP_F)
        part_up = load_rows(d_up, row, real, first_f, f, f, STEP_F, UPCAST)
        of_gate = load_matrix(w_gate, expert, first_d, first_f, d, f, stride_expert, stride_d, stride_f,
                              TILE_D, STEP_F, DESCRIPTORS, UPCAST)  # fmt: skip
        of_up = load_matrix(w_up, expert, first_d, first_f, d, f, stride_expert, stride_d, stride_f,
                            TILE_D, STEP_F, DESCRIPTORS, UPCAST)  # fmt: skip
        total = tl.dot(part_gate, tl.trans(of_gate), total, input_precision="ieee")
        total = tl.dot(part_up, tl.trans(of_up), total, input_precision="ieee")
    store_rows(total, out, row, real, first_d, d, TILE_D, UPCAST)


@triton.jit
def matrix_gradient_kernel(
    left, right, token, row_bounds, d_matrix, stride_left, stride_right, n_left, n_right,
    TILE_LEFT: tl.constexpr, TILE_RIGHT: tl.constexpr, STEP_ROWS: tl.constexpr, GROUP: tl.constexpr,
    LEFT_BY_TOKEN: tl.constexpr, RIGHT_BY_TOKEN: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """d_matrix (e, n_left, n_right) = leftᵀ right over the rows of each expert.

    left (…, n_left) and right (…, n_right) have a row for each sorted row, or, by token, one for each token.
    """
    n_left_tiles, n_right_tiles = tl.cdiv(n_left, TILE_LEFT), tl.cdiv(n_right, TILE_RIGHT)
    program = tl.program_id(0)
    expert = program // (n_left_tiles * n_right_tiles)
    program = program % (n_left_tiles * n_right_tiles)
    left_tile, right_tile = tl.swizzle2d(
        program // n_right_tiles, program % n_right_tiles, n_left_tiles, n_right_tiles, GROUP
    )
    first_left, first_right = left_tile * TILE_LEFT, right_tile * TILE_RIGHT
    first_row, end = tl.load(row_bounds + expert), tl.load(row_bounds + expert + 1)

    total = tl.zeros((TILE_LEFT, TILE_RIGHT), dtype=tl.float32)
    for first in range(first_row, end, STEP_ROWS):
        row = first + tl.arange(0, STEP_ROWS)
        real = row < end
        left_row = row.to(tl.int64)
        right_row = left_row
        if LEFT_BY_TOKEN:
            left_row = tl.load(token + row, mask=real, other=0).to(tl.int64)
        if RIGHT_BY_TOKEN:
            right_row = tl.load(token + row, mask=real, other=0).to(tl.int64)
        part_left = load_rows(left, left_row, real, first_left, n_left, stride_left, TILE_LEFT, UPCAST)
        part_right = load_rows(right, right_row, real, first_right, n_right, stride_right, TILE_RIGHT, UPCAST)
        total = tl.dot(tl.trans(part_left), part_right, total, input_precision="ieee")

    matrix = d_matrix + expert.to(tl.int64) * n_left * n_right
    of_left = first_left + tl.arange(0, TILE_LEFT)
    store_rows(total, matrix, of_left.to(tl.int64), of_left < n_left, first_right, n_right, TILE_RIGHT, UPCAST)
