"""Tile sizes, warps and pipeline stages of the flash kernels, for each head_dim, dtype and target.

In plain Python, not by trying at run time: the choice is the same in a launch, in the compile report and in a test, and
the first call of a new size costs one compilation, not twenty. No configuration here has been timed on a GPU yet:
they are what compiles without spilling registers, and what is usual for such kernels.

Warps specialise, some loading and some calculating, where the compiler does it and spills nothing: on Blackwell, heads
up to 128, neither causal nor packed. Tried besides, with Triton 3.6, 3.7.1 and 3.9:

- Hopper. With 8 warps the compiler passes over the wish: the same registers, no `setmaxnreg`, no warps on top. It
  specialises kernels of 4 warps only, and stops there on an error of its own: with both loops marked or the first
  alone, tiles of 64 × 64, 128 × 64 and 128 × 128.
- Blackwell, causal: warps that specialise in both of its loops over one sum spill (Triton 3.7).
- Blackwell, packed: clean with 3.6 and 3.9; 3.7.1 spills 92 bytes for heads of 128, 84 for heads of 64.
- Blackwell, heads of 256: each of the three spills, 20 bytes at least with 64 queries in a tile, 1900 with 128.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnbook.kernels.targets import Target


@dataclass(frozen=True)
class Config:
    """How a kernel of attention is cut: what the compiler is told besides the options."""

    tile_q: int
    """Queries of a tile."""
    tile_k: int
    """Keys of a tile."""
    num_warps: int
    num_stages: int
    """How many tiles of keys are on their way at a time."""
    descriptors: bool = False
    """Whether tiles of k and v come by descriptor (TMA), where the memory allows it."""
    warp_specialize: bool = False
    """Whether some warps load and others calculate."""


def padded(size: int) -> int:
    """The power of two, at least 16, that holds so many components."""
    return max(16, 1 << (size - 1).bit_length())


def forward_config(
    head_dim: int,
    d_v: int,
    element_bytes: int,
    target: Target,
    *,
    bare: bool,
    is_causal: bool,
    describable: bool,
    packed: bool,
) -> Config:
    """How the forward kernel is cut.

    `bare`: no mask, softcap or ALiBi, whose tiles of numbers take registers too. `describable`: k and v lie in memory
    so that descriptors can read them. `packed`: sequences end within the tiles.
    """
    widest = max(padded(head_dim), padded(d_v))
    if target.interpreted:
        return Config(32, 32, num_warps=4, num_stages=1)
    if element_bytes == 4:  # multiplied without the matrix units, to be exact, out of registers
        return Config(32, 32, num_warps=8, num_stages=1) if bare and widest <= 128 else Config(16, 16, 8, 1)
    generation = target.capability[0]
    if generation not in (9, 10):  # 8.x, and 12.x, which has Ampere's matrix instructions and less shared memory
        if not bare or widest > 128:
            return Config(64, 32, num_warps=8, num_stages=2)
        return Config(128, 64, num_warps=8, num_stages=2)
    if not bare:
        tile_q = 32 if generation == 9 and widest > 128 else 64
        return Config(tile_q, 32, num_warps=8, num_stages=2, descriptors=describable)
    if widest > 128:
        tile_q, tile_k = (128, 32) if generation == 9 else (64, 64)
        return Config(tile_q, tile_k, num_warps=8, num_stages=2, descriptors=describable)
    if generation == 9:  # packed, 128 keys by descriptor leave 24 bytes on the stack (Triton 3.7.1)
        tile_k = 128 if describable and not packed else 64
        return Config(128, tile_k, num_warps=8, num_stages=2, descriptors=describable)
    specialize = describable and not is_causal and not packed
    return Config(128, 64, num_warps=8, num_stages=2, descriptors=describable, warp_specialize=specialize)


def again_config(head_dim: int, d_v: int, element_bytes: int) -> Config:
    """How it is cut where it runs a second time, for tiles that hold a NaN: few rows, so few are done again."""
    if element_bytes == 4:
        return Config(16, 16, num_warps=8, num_stages=1)
    if max(padded(head_dim), padded(d_v)) > 128:
        return Config(16, 16, num_warps=16, num_stages=1)
    return Config(32, 32, num_warps=4, num_stages=1)
