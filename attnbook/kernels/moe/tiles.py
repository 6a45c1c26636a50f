"""What every product of the experts needs: whose rows a tile holds, tiles of rows and of matrices.

The rows of all experts lie one after another, sorted by expert, and each expert's share is cut into tiles of its own:

    rows     expert 0        expert 2   expert 3          expert 1 has none: no tile
             ┌─────────┬────┬─────────┬─────────┬──┐      with TILE_ROWS = 4 and 6, 0, 4, 5 rows:
    tile     │    0    │ 1  │    2    │    3    │ 4│      row_bounds  0 6 6 10 15
             └─────────┴────┴─────────┴─────────┴──┘      tile_bounds 0 2 2  3  5

How many rows an expert has is known on the device only, so a launch has as many tiles as there can be at most, and a
tile finds out whose it is from `tile_bounds`; nobody waits for the numbers to reach the CPU.
"""

# Bodies of kernels are Triton, which has no types to check.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import triton
import triton.language as tl

from attnbook.kernels.tiles import rounded


@triton.jit
def expert_of(row_tile, tile_bounds, n_experts, EXPERTS: tl.constexpr):
    """The expert whose rows this tile holds: the first whose tiles end behind it. n_experts or more: nobody's."""
    number = tl.arange(0, EXPERTS)
    end = tl.load(tile_bounds + 1 + number, mask=number < n_experts, other=2147483647)  # (EXPERTS,)
    return tl.sum((end <= row_tile).to(tl.int32))


@triton.jit
def rows_of(row_tile, expert, row_bounds, tile_bounds, TILE_ROWS: tl.constexpr):
    """The sorted rows of this tile, int64, and which of them are the expert's: the last tile may be part empty."""
    first = tl.load(row_bounds + expert) + (row_tile - tl.load(tile_bounds + expert)) * TILE_ROWS
    row = first + tl.arange(0, TILE_ROWS)
    return row.to(tl.int64), row < tl.load(row_bounds + expert + 1)


@triton.jit
def load_rows(base, row, real, first, width, stride, TILE: tl.constexpr, UPCAST: tl.constexpr):
    """Columns first … first + TILE of some rows, (rows, TILE); 0 where there is no such row or column."""
    column = first + tl.arange(0, TILE)
    at = base + row[:, None] * stride + column[None, :]
    return upcast(tl.load(at, mask=real[:, None] & (column < width)[None, :], other=0.0), UPCAST)


@triton.jit
def load_matrix(
    matrix, expert, first_row, first_column, n_rows, n_columns, stride_expert, stride_row, stride_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DESCRIPTOR: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """A tile of one expert's matrix, (ROWS, COLUMNS); 0 beyond its edges, where the next expert's numbers would be.

    `matrix` is a pointer, or, with DESCRIPTOR, a tensor descriptor of (1, ROWS, COLUMNS): then the hardware works out
    the addresses and fills in the zeros.
    """
    if DESCRIPTOR:
        tile = matrix.load([expert, first_row, first_column]).reshape(ROWS, COLUMNS)
    else:
        row = first_row + tl.arange(0, ROWS)
        column = first_column + tl.arange(0, COLUMNS)
        inside = (row < n_rows)[:, None] & (column < n_columns)[None, :]
        at = matrix + expert.to(tl.int64) * stride_expert
        at += row.to(tl.int64)[:, None] * stride_row + column.to(tl.int64)[None, :] * stride_column
        tile = tl.load(at, mask=inside, other=0.0)
    return upcast(tile, UPCAST)


@triton.jit
def store_rows(tile, base, row, real, first, width, TILE: tl.constexpr, UPCAST: tl.constexpr):
    """Write (rows, TILE) into columns first … of a contiguous matrix of this width, in its dtype."""
    column = first + tl.arange(0, TILE)
    at = base + row[:, None] * width + column[None, :]
    tl.store(at, rounded(tile, base.dtype.element_ty, UPCAST), mask=real[:, None] & (column < width)[None, :])


@triton.jit
def upcast(tile, UPCAST: tl.constexpr):
    """In float32 with UPCAST: the interpreter's arithmetic on bfloat16 is wrong (Triton 3.6 to 3.9)."""
    return tile.to(tl.float32) if UPCAST else tile
