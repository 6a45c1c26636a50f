"""How each kernel of the experts is cut into tiles, in plain Python, by target, dtype, and numbers of rows and columns.

A matrix product reads (rows + columns) · depth numbers for rows · columns · depth multiplications, so tiles are as
large as registers hold: an accumulator of 128 × 128 in float32 takes 64 registers of each of 256 threads. These numbers
come from that, and from what the compiler says about registers and shared memory (`attnbook kernels`). Nobody has timed
them on a GPU yet. With d or f that is no multiple of 16, loads fall apart and some of these tiles spill: right,
but slower than they could be.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnbook.kernels.targets import Target


@dataclass(frozen=True)
class Tiles:
    """The tiles of a launch that multiplies no matrices."""

    rows: int
    columns: int
    num_warps: int = 4
    num_stages: int = 2


@dataclass(frozen=True)
class Product:
    """The tiles of a matrix product: rows × columns of the result, going through the inner axis in steps."""

    rows: int
    columns: int
    step: int
    num_warps: int
    num_stages: int
    descriptors: bool = False
    """Are the experts' matrices read by tensor descriptors (TMA), where they lie as those need it?"""


GROUP = 8
"""How many row tiles take their turns at the same columns, so that what one read is still in the L2 cache."""


def sort() -> Tiles:
    """For `count_kernel` and `place_kernel`: assignments in a tile, each compared with each."""
    return Tiles(64, 64)


def choose(n_experts: int) -> Tiles:
    """For `choose_kernel`: tokens, and all experts; 2048 scores of 8 bytes are 32 registers of each of 128 threads."""
    columns = power_of_2(n_experts)
    return Tiles(max(1, min(64, 2048 // columns)), columns)


def combine(d: int) -> Tiles:
    """For `combine_kernel`."""
    columns = min(256, power_of_2(d))
    return Tiles(max(1, min(64, 2048 // columns)), columns)


def gate_up(target: Target, itemsize: int, rows_each: int, d: int, f: int) -> Product:
    """For `gate_up_kernel`: two accumulators; rows_each is the mean number of rows of an expert."""
    return _product(target, itemsize, (rows_each, f, d), most=(128, 128, 64), on_ampere=(128, 64, 32))


def down(target: Target, itemsize: int, rows_each: int, d: int, f: int) -> Product:
    """For `down_kernel`."""
    return _product(target, itemsize, (rows_each, d, f), most=(128, 128, 64), on_ampere=(128, 128, 32))


def hidden_gradient(target: Target, itemsize: int, rows_each: int, d: int, f: int) -> Product:
    """For `hidden_gradient_kernel`: three accumulators, five tiles read a step."""
    return _product(target, itemsize, (rows_each, f, d), most=(128, 64, 64), on_ampere=(64, 64, 32))


def token_gradient(target: Target, itemsize: int, rows_each: int, d: int, f: int) -> Product:
    """For `token_gradient_kernel`: one accumulator, four tiles read a step."""
    return _product(target, itemsize, (rows_each, d, f), most=(128, 128, 64), on_ampere=(128, 128, 32))


def matrix_gradient(target: Target, itemsize: int, rows_each: int, n_left: int, n_right: int) -> Product:
    """For `matrix_gradient_kernel`: the result is an expert's matrix, the inner axis are its rows.

    More stages than the others: which token a row belongs to is read first, some steps ahead of the row itself.
    """
    most, on_ampere = (128, 128, 64), (128, 128, 32)
    return _product(target, itemsize, (n_left, n_right, rows_each), most=most, on_ampere=on_ampere, num_stages=5)


def _product(
    target: Target,
    itemsize: int,
    sizes: tuple[int, int, int],
    *,
    most: tuple[int, int, int],
    on_ampere: tuple[int, int, int],
    num_stages: int = 3,
) -> Product:
    """Tiles no larger than the sizes (rows, columns, inner) need, and no smaller than 16, the matrix units' least.

    Ampere's instructions take both factors from registers, Hopper's and Blackwell's from shared memory: smaller there.
    """
    if target.interpreted:  # few large tiles are faster there, and still more than one along every axis in the tests
        most = (64, 128, 64)
    elif itemsize == 4:  # no matrix unit takes float32 as it is: ordinary multiplications, small tiles
        most, num_stages = (64, 64, 16), 2
    elif not target.has_descriptors:
        most, num_stages = on_ampere, max(num_stages, 4)  # smaller steps, so more of them on their way
    rows, columns, step = (max(16, min(limit, power_of_2(size))) for limit, size in zip(most, sizes, strict=True))
    return Product(rows, columns, step, 8, num_stages, target.has_descriptors)


def power_of_2(size: int) -> int:
    """The smallest power of 2 that is not below size."""
    return 1 << max(size - 1, 0).bit_length()
