"""Tile sizes, warps and pipeline stages of the backward kernels; see `attnbook.kernels.flash.configs`."""

from __future__ import annotations

from attnbook.kernels.flash.configs import Config, padded
from attnbook.kernels.targets import Target


def keys_config(head_dim: int, d_v: int, element_bytes: int, target: Target) -> Config:
    """How the kernel for the gradients of k and v is cut."""
    widest = max(padded(head_dim), padded(d_v))
    if target.interpreted:
        return Config(32, 64, num_warps=4, num_stages=1)
    if element_bytes == 4:
        return Config(16, 32, num_warps=4, num_stages=1)
    if widest <= 64:
        return Config(64, 64, num_warps=4, num_stages=2)
    return Config(32, 64, num_warps=8, num_stages=2)


def queries_config(head_dim: int, d_v: int, element_bytes: int, target: Target) -> Config:
    """How the kernel for the gradient of q is cut."""
    widest = max(padded(head_dim), padded(d_v))
    if target.interpreted:
        return Config(64, 32, num_warps=4, num_stages=1)
    if element_bytes == 4:
        return Config(32, 16, num_warps=4, num_stages=1)
    if widest <= 64:
        return Config(64, 64, num_warps=4, num_stages=2)
    return Config(64, 32, num_warps=8, num_stages=2)


def mask_config(head_dim: int, d_v: int, element_bytes: int, target: Target) -> Config:
    """How the kernel for the gradient of a mask is cut: it keeps one tile of scores and nothing as wide as a head."""
    if target.interpreted:
        return Config(32, 32, num_warps=4, num_stages=1)
    return Config(32, 32, num_warps=4, num_stages=1)


def rows_config(target: Target) -> Config:
    """How the kernel that goes before the others is cut: it reads out and d_out once, and multiplies no matrices."""
    return Config(32, 0, num_warps=4, num_stages=1)
