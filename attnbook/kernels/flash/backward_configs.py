"""Tile sizes, warps and pipeline stages of the backward kernels; see `attnbook.kernels.flash.configs`.

A tile of keys needs twice the registers of a tile of queries, as it sums up two gradients; what has a mask, a softcap
or slopes needs some more for these. Each number here is the largest of those tried with which the compiler spills
nothing on that target; none has been timed, as no GPU was at hand. What a kernel walks over comes by descriptor on
Hopper and Blackwell, where the memory allows it: the queries for the gradients of k and v, the keys for that of q. What
a program reads or writes once goes through pointers, which know where a packed sequence ends.
"""

from __future__ import annotations

from dataclasses import replace

from attnbook.kernels.flash.configs import Config, padded
from attnbook.kernels.targets import Target

HOPPER, BLACKWELL = (9, 0), (10, 0)


def keys_config(head_dim: int, d_v: int, element_bytes: int, target: Target, options: bool) -> Config:
    """How the kernel for the gradients of k and v is cut; `options`: has the call a mask, a softcap or slopes?"""
    return replace(_keys(head_dim, d_v, element_bytes, target, options), descriptors=copies(element_bytes, target))


def queries_config(head_dim: int, d_v: int, element_bytes: int, target: Target, options: bool) -> Config:
    """How the kernel for the gradient of q is cut; `options`: has the call a mask, a softcap or slopes?"""
    config = _queries(head_dim, d_v, element_bytes, target, options)
    # With descriptors causal calls of wide heads spill on Hopper, with pointers they do not: Triton 3.6 and 3.7 with
    # 128 queries in a tile (112 bytes of stack, 3.7.1), 3.9 with 64, where sequences are packed.
    if target.capability[0] == 9 and min(padded(head_dim), padded(d_v)) > 128 and not options:
        return config
    return replace(config, descriptors=copies(element_bytes, target))


def again_config(config: Config, head_dim: int, d_v: int, target: Target, *, of_queries: bool = False) -> Config:
    """How the kernel cut like this is cut where it runs a second time: tiles of few rows, by pointers."""
    if target.interpreted:
        return replace(config, descriptors=False)
    few = 16 if max(padded(head_dim), padded(d_v)) > 128 else 32
    tile_q, tile_k = (min(config.tile_q, few), 16) if of_queries else (16, min(config.tile_k, few))
    return Config(tile_q, tile_k, num_warps=8, num_stages=1)


def copies(element_bytes: int, target: Target) -> bool:
    """Has the target descriptors, and does a kernel of this dtype want them? float32 is multiplied out of registers."""
    return target.capability[0] in (9, 10) and not target.interpreted and element_bytes == 2


def _keys(head_dim: int, d_v: int, element_bytes: int, target: Target, options: bool) -> Config:
    widest = max(padded(head_dim), padded(d_v))
    if target.interpreted:
        return Config(32, 64, num_warps=4, num_stages=1)
    if element_bytes == 4:
        return Config(16, 16, num_warps=8, num_stages=1)
    if widest <= 64:
        if options:
            return Config(32, 64, num_warps=8, num_stages=1)
        # Before Hopper 64 queries spill in causal calls: Triton 3.6.
        return Config(32 if target.capability < HOPPER else 64, 128, num_warps=8, num_stages=2)
    if widest <= 128:
        if target.capability < HOPPER:  # of the compilers, Triton 3.6's needs the most registers
            return Config(32, 32, num_warps=8, num_stages=1) if options else Config(16, 64, num_warps=8, num_stages=2)
        if options:
            # On Blackwell a program with fewer keys leaves tensor memory for a second one beside it. The assembler
            # then aims at half the registers for each, and some calls spill: Triton 3.6 with every option, 3.7 with
            # slopes, 3.9 with a mask of booleans.
            return Config(16, 64, 8, 1) if target.capability < BLACKWELL else Config(32, 128, 8, 1)
        # Blackwell has its sums in tensor memory, and so registers left for a longer tile of queries.
        return Config(64 if target.capability >= BLACKWELL else 32, 128, num_warps=8, num_stages=2)
    # Two sums of 64 keys × 256 spill where they are in registers; 32 are too few for Hopper's own matrix instruction.
    if target.capability < BLACKWELL:
        of_keys = 32 if options or target.capability >= HOPPER else 16
        return Config(16 if options else 32, of_keys, num_warps=8, num_stages=1)
    return Config(16, 32, num_warps=8, num_stages=1) if options else Config(32, 64, num_warps=8, num_stages=2)


def _queries(head_dim: int, d_v: int, element_bytes: int, target: Target, options: bool) -> Config:
    widest = max(padded(head_dim), padded(d_v))
    if target.interpreted:
        return Config(64, 32, num_warps=4, num_stages=1)
    if element_bytes == 4:
        return Config(32, 16, num_warps=8, num_stages=1)
    if widest <= 64:
        return Config(128, 32, num_warps=8, num_stages=1) if options else Config(128, 64, num_warps=8, num_stages=2)
    if widest <= 128:
        if not options:
            if target.capability >= BLACKWELL:
                return Config(64, 64, num_warps=8, num_stages=2)
            return Config(128, 32 if target.capability < HOPPER else 64, num_warps=8, num_stages=2)
        # Blackwell: with one tile of keys on its way some calls spill, as those of a softcap (see `_keys`).
        return Config(128, 32, 8, 2) if target.capability >= BLACKWELL else Config(64, 16, 8, 1)
    if options:
        return Config(32, 16, num_warps=8, num_stages=1)
    if target.capability < HOPPER:
        return Config(32, 32, num_warps=8, num_stages=2)
    if target.capability < BLACKWELL and padded(head_dim) != padded(d_v):
        return Config(64, 64, num_warps=8, num_stages=2)  # DeepSeek's 192 and 128, padded to 256 and 128
    return Config(128 if target.capability < BLACKWELL else 64, 32, num_warps=8, num_stages=2)


def mask_config(head_dim: int, d_v: int, element_bytes: int, target: Target) -> Config:
    """How the kernel for the gradient of a mask is cut: it keeps one tile of scores and nothing as wide as a head."""
    if target.interpreted or element_bytes == 4:
        return Config(32, 32, num_warps=4, num_stages=1)
    if max(head_dim, d_v) > 128 and target.capability < HOPPER:
        return Config(32, 16, num_warps=8, num_stages=1)
    return Config(64, 32, num_warps=8, num_stages=1)


def rows_config(target: Target) -> Config:
    """How the kernel that goes before the others is cut: it reads out and d_out once, and multiplies no matrices."""
    return Config(32, 0, num_warps=4, num_stages=1)
