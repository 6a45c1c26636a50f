"""The experts' products and their gradients: sort the assignments, then three launches forward and six backward.

Everything here is what `attnbook.kernels.moe` promises; this file only prepares, launches, and hands out memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from attnbook.errors import DTypeError, ShapeError
from attnbook.kernels import outputs
from attnbook.kernels.available import interpreting
from attnbook.kernels.moe import configs, sort
from attnbook.kernels.moe.backward import hidden_gradient_kernel, matrix_gradient_kernel, token_gradient_kernel
from attnbook.kernels.moe.forward import combine_kernel, down_kernel, gate_up_kernel
from attnbook.kernels.targets import Target, target_of
from attnbook.kernels.variant import ALWAYS


class Call(NamedTuple):
    """One call, ready to be launched: inputs as the kernels want them, sizes, and where every assignment goes."""

    x: Tensor
    weights: Tensor
    w_gate: Tensor
    w_up: Tensor
    w_down: Tensor
    sorted: sort.Sorted
    target: Target
    n: int
    e: int
    d: int
    f: int

    @property
    def of_rows(self) -> tuple[Target, int, int, int, int]:
        """What a configuration is chosen by: target, bytes of an element, mean rows an expert, d, f."""
        return self.target, self.x.element_size(), triton.cdiv(self.n, self.e), self.d, self.f

    @property
    def upcast(self) -> bool:
        return interpreting() and self.x.dtype == torch.bfloat16


def experts_forward(
    x: Tensor, experts: Tensor, weights: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor
) -> Tensor:
    """See `attnbook.kernels.moe.experts_forward`."""
    call = prepare(x, experts, weights, w_gate, w_up, w_down)
    if call is None:
        return torch.zeros_like(x, memory_format=torch.contiguous_format)
    return combine(call, down(call, gate_up(call)), call.weights)


def experts_backward(
    grad_y: Tensor,
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    *,
    needs_experts: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """See `attnbook.kernels.moe.experts_backward`."""
    call = prepare(x, experts, weights, w_gate, w_up, w_down)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype:
        raise ShapeError(
            f"grad_y is {tuple(grad_y.shape)} of {grad_y.dtype}: expected x's, {tuple(x.shape)} of {x.dtype}"
        )
    matrices = (w_gate, w_up, w_down)
    if call is None:
        zeros = (torch.zeros_like(a, memory_format=torch.contiguous_format) for a in (x, weights, *matrices))
        d_x, d_weights, *d_matrices = zeros
        return d_x, d_weights, *(d_matrices if needs_experts else (None, None, None))
    grad_y = rows_together(grad_y)
    d_gate, d_up, hidden, d_weights = hidden_gradient(call, grad_y, needs_hidden=needs_experts)
    d_x = combine(call, token_gradient(call, d_gate, d_up), None)
    if not needs_experts:
        return d_x, d_weights, None, None, None
    return (
        d_x,
        d_weights,
        matrix_gradient(call, call.x, d_gate, left_by_token=True),
        matrix_gradient(call, call.x, d_up, left_by_token=True),
        matrix_gradient(call, hidden, grad_y, right_by_token=True),
    )


# Forward


def gate_up(call: Call) -> Tensor:
    """The hidden layer (n, f), sorted."""
    hidden = outputs.empty((call.n, call.f), call.x)
    tiles = configs.gate_up(*call.of_rows)
    gate, up, descriptors = _read(tiles, (call.w_gate, call.w_up), (tiles.step, tiles.columns))
    bounds, n_row_tiles = _row_tiles(call, tiles)
    gate_up_kernel[(n_row_tiles * triton.cdiv(call.f, tiles.columns),)](
        call.x, call.sorted.token, call.sorted.row_bounds, bounds, gate, up, hidden,
        call.x.stride(0), *call.w_gate.stride(), call.e, call.d, call.f, n_row_tiles,
        TILE_ROWS=tiles.rows, TILE_F=tiles.columns, STEP_D=tiles.step, DESCRIPTORS=descriptors, **_common(call, tiles),
    )  # fmt: skip
    return hidden


def down(call: Call, hidden: Tensor) -> Tensor:
    """The rows (n, d), sorted: every expert's answer, its weight not yet applied."""
    out = outputs.empty((call.n, call.d), call.x)
    tiles = configs.down(*call.of_rows)
    matrix, descriptors = _read(tiles, (call.w_down,), (tiles.step, tiles.columns))
    bounds, n_row_tiles = _row_tiles(call, tiles)
    down_kernel[(n_row_tiles * triton.cdiv(call.d, tiles.columns),)](
        hidden, call.sorted.row_bounds, bounds, matrix, out,
        *call.w_down.stride(), call.e, call.d, call.f, n_row_tiles,
        TILE_ROWS=tiles.rows, TILE_D=tiles.columns, STEP_F=tiles.step, DESCRIPTORS=descriptors, **_common(call, tiles),
    )  # fmt: skip
    return out


def combine(call: Call, out: Tensor, weights: Tensor | None) -> Tensor:
    """(t, d): each token's rows of out (n, d), added up, with its weights or without."""
    y = outputs.empty(call.x.shape, call.x)
    place, tiles = call.sorted.place, configs.combine(call.d)
    t, top_k = place.shape
    combine_kernel[(triton.cdiv(t, tiles.rows), triton.cdiv(call.d, tiles.columns))](
        out, place, place if weights is None else weights, y, t, call.d, top_k,
        TILE_TOKENS=tiles.rows, TILE_D=tiles.columns, WEIGHTED=weights is not None, UPCAST=call.upcast,
        num_warps=tiles.num_warps, num_stages=tiles.num_stages, **ALWAYS,
    )  # fmt: skip
    return y


# Backward


def hidden_gradient(call: Call, grad_y: Tensor, *, needs_hidden: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """d_gate, d_up and weight · hidden (n, f), sorted, and d_weights (t, k)."""
    tiles = configs.hidden_gradient(*call.of_rows)
    n_f_tiles = triton.cdiv(call.f, tiles.columns)
    d_gate, d_up = (outputs.empty((call.n, call.f), call.x) for _ in range(2))
    hidden = outputs.empty((call.n, call.f), call.x) if needs_hidden else d_up
    parts = outputs.empty((n_f_tiles, call.n), call.x, torch.float32)
    gate, up, descriptors = _read(tiles, (call.w_gate, call.w_up), (tiles.step, tiles.columns))
    of_down, also_down = _read(tiles, (call.w_down,), (tiles.columns, tiles.step))
    if not (descriptors and also_down):
        gate, up, of_down = call.w_gate, call.w_up, call.w_down
    bounds, n_row_tiles = _row_tiles(call, tiles)
    hidden_gradient_kernel[(n_row_tiles * n_f_tiles,)](
        call.x, grad_y, call.sorted.order, call.sorted.token, call.weights, call.sorted.row_bounds, bounds,
        gate, up, of_down, d_gate, d_up, hidden, parts,
        call.x.stride(0), grad_y.stride(0), *call.w_gate.stride(), *call.w_down.stride(),
        call.e, call.n, call.d, call.f, n_row_tiles,
        TILE_ROWS=tiles.rows, TILE_F=tiles.columns, STEP_D=tiles.step, DESCRIPTORS=descriptors and also_down,
        NEEDS_HIDDEN=needs_hidden, **_common(call, tiles),
    )  # fmt: skip
    place = call.sorted.place
    of_place = parts.sum(0)[place.clamp(min=0)]  # (t, k)
    return d_gate, d_up, hidden, of_place.masked_fill(place < 0, 0.0)


def token_gradient(call: Call, d_gate: Tensor, d_up: Tensor) -> Tensor:
    """(n, d), sorted: what each row adds to its token's gradient."""
    out = outputs.empty((call.n, call.d), call.x)
    tiles = configs.token_gradient(*call.of_rows)
    gate, up, descriptors = _read(tiles, (call.w_gate, call.w_up), (tiles.columns, tiles.step))
    bounds, n_row_tiles = _row_tiles(call, tiles)
    token_gradient_kernel[(n_row_tiles * triton.cdiv(call.d, tiles.columns),)](
        d_gate, d_up, call.sorted.row_bounds, bounds, gate, up, out,
        *call.w_gate.stride(), call.e, call.d, call.f, n_row_tiles,
        TILE_ROWS=tiles.rows, TILE_D=tiles.columns, STEP_F=tiles.step, DESCRIPTORS=descriptors, **_common(call, tiles),
    )  # fmt: skip
    return out


def matrix_gradient(
    call: Call, left: Tensor, right: Tensor, *, left_by_token: bool = False, right_by_token: bool = False
) -> Tensor:
    """(e, left's columns, right's columns): leftᵀ right over each expert's rows; zeros where it has none."""
    n_left, n_right = left.shape[1], right.shape[1]
    d_matrix = outputs.empty((call.e, n_left, n_right), call.x)
    target, itemsize, rows_each, _, _ = call.of_rows
    tiles = configs.matrix_gradient(target, itemsize, rows_each, n_left, n_right)
    programs = triton.cdiv(n_left, tiles.rows) * triton.cdiv(n_right, tiles.columns) * call.e
    matrix_gradient_kernel[(programs,)](
        left, right, call.sorted.token, call.sorted.row_bounds, d_matrix,
        left.stride(0), right.stride(0), n_left, n_right,
        TILE_LEFT=tiles.rows, TILE_RIGHT=tiles.columns, STEP_ROWS=tiles.step, GROUP=configs.GROUP,
        LEFT_BY_TOKEN=left_by_token, RIGHT_BY_TOKEN=right_by_token, UPCAST=call.upcast,
        num_warps=tiles.num_warps, num_stages=tiles.num_stages, **ALWAYS,
    )  # fmt: skip
    return d_matrix


# Before the first launch


def prepare(x: Tensor, experts: Tensor, weights: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Call | None:
    """Check, and sort; None where there is nothing to multiply: no token, no slot, or an axis of length 0."""
    check(x, experts, weights, w_gate, w_up, w_down)
    e, d, f = w_gate.shape
    if not all((experts.numel(), e, d, f)):
        return None
    if w_gate.stride() != w_up.stride():  # they share their strides in the kernels
        w_gate, w_up = w_gate.contiguous(), w_up.contiguous()
    where = sort.by_expert(experts, e)
    return Call(rows_together(x), weights.contiguous(), w_gate, w_up, w_down, where, target_of(x.device),
                experts.numel(), e, d, f)  # fmt: skip


def check(x: Tensor, experts: Tensor, weights: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> None:
    """Raises ShapeError or DTypeError for what would make a kernel read beyond the end of something."""
    (t, d), (e, _, f) = x.shape, w_gate.shape
    slots = tuple(experts.shape)
    expected = {
        "w_gate": (e, d, f),
        "w_up": (e, d, f),
        "w_down": (e, f, d),
        "experts": (t, *slots[1:2]),
        "weights": slots,
    }
    given = {"w_gate": w_gate, "w_up": w_up, "w_down": w_down, "experts": experts, "weights": weights}
    for name, shape in expected.items():
        if tuple(given[name].shape) != shape:
            raise ShapeError(f"{name} has shape {tuple(given[name].shape)}: expected {shape}")
    for name, dtype in {
        "w_gate": x.dtype,
        "w_up": x.dtype,
        "w_down": x.dtype,
        "weights": torch.float32,
        "experts": torch.int64,
    }.items():
        if given[name].dtype != dtype:
            raise DTypeError(f"{name} has dtype {given[name].dtype}: expected {dtype}")
    for name, other in given.items():
        if other.device != x.device:
            raise ValueError(f"{name} is on device {other.device} but x on {x.device}: they must be equal")


def rows_together(x: Tensor) -> Tensor:
    """The tensor itself where each row's components lie one after another; else a copy."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _row_tiles(call: Call, tiles: configs.Product) -> tuple[Tensor, int]:
    """Where each expert's row tiles begin, on the device, and how many there can be at most, which is known here."""
    at_most = triton.cdiv(call.n, tiles.rows) + min(call.e, call.n) - 1
    return sort.tile_bounds(call.sorted.row_bounds, tiles.rows), at_most


def _common(call: Call, tiles: configs.Product) -> dict[str, Any]:
    """The constants that every product by row tiles has, and what the compiler is told."""
    return {"EXPERTS": configs.power_of_2(call.e), "GROUP": configs.GROUP, "UPCAST": call.upcast,
            "num_warps": tiles.num_warps, "num_stages": tiles.num_stages, **ALWAYS}  # fmt: skip


def _read(tiles: configs.Product, matrices: tuple[Tensor, ...], block: tuple[int, int]) -> tuple[Any, ...]:
    """The matrices as the kernel reads them, descriptors or pointers, and which of the two."""
    if not tiles.descriptors or not all(_describable(matrix) for matrix in matrices):
        return *matrices, False
    from triton.tools.tensor_descriptor import TensorDescriptor

    return *(TensorDescriptor.from_tensor(matrix, [1, *block]) for matrix in matrices), True


def _describable(matrix: Tensor) -> bool:
    """Can the hardware read it by descriptor? Columns one after another, all else at multiples of 16 bytes."""
    size = matrix.element_size()
    *outer, last = matrix.stride()
    return last == 1 and matrix.data_ptr() % 16 == 0 and all(s > 0 and s * size % 16 == 0 for s in outer)
