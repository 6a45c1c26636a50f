"""How many warps of a compiled kernel fit on one multiprocessor at once: an upper bound, from what the compiler used.

Whole blocks share a multiprocessor's registers, shared memory, tensor memory, and places for threads and blocks; the
scarcest of them decides. It is an estimate: how full the card is in a run depends on the grid too.

The limits are the target's (`attnbook.kernels.targets` says from where). Source of the units in which they are handed
out: CUDA's header `cuda_occupancy.h`.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnbook.kernels.targets import Target

REGISTER_UNIT = 256
"""Registers are handed to a warp in multiples of this, that is 8 for each of its threads."""
QUARTERS = 4
"""Parts of a multiprocessor, each with its own registers: a warp's lie in one of them."""
SHARED_UNIT = 128
"""Shared memory is handed to a block in multiples of this many bytes."""
TENSOR_COLUMNS = 512
"""Columns of tensor memory that a multiprocessor of compute capability 10.0 has (PTX ISA, "Tensor Memory")."""


@dataclass(frozen=True)
class Occupancy:
    """What fits on one multiprocessor at once; as made without arguments, nothing."""

    blocks: int = 0
    warps: int = 0
    share: float = 0.0
    """The warps, as a part of those that a multiprocessor can keep."""
    limits: tuple[str, ...] = ()
    """What lets no further block in: some of "registers", "shared memory", "tensor memory", "threads" and "blocks"."""


def occupancy(target: Target, *, registers: int, warps: int, shared_bytes: int, tensor_columns: int = 0) -> Occupancy:
    """What fits of blocks with `warps` warps, `registers` a thread, and so much shared and tensor memory.

    A block that does not fit at all gives 0 blocks.
    """
    of_warp = _up(max(registers, 1) * target.threads_per_warp, REGISTER_UNIT)
    most_warps = target.threads_per_sm // target.threads_per_warp
    fits = {
        "registers": target.registers_per_sm // QUARTERS // of_warp * QUARTERS // warps,
        "shared memory": target.shared_bytes_per_sm // _up(shared_bytes + target.reserved_shared_bytes, SHARED_UNIT),
        "threads": most_warps // warps,
        "blocks": target.blocks_per_sm,
    }
    if tensor_columns:
        fits["tensor memory"] = TENSOR_COLUMNS // tensor_columns
    blocks = min(fits.values())
    limits = tuple(name for name, most in fits.items() if most == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / most_warps, limits)


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
