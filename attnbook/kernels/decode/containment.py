"""A product of weights and values in which what is not finite reaches only the rows that may see it.

A key that is hidden has weight 0, and 0 · NaN is NaN: one such value would reach every row of the tile.
"""

# Bodies of kernels are Triton, which has no types to check: Any throughout.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def is_finite(x):
    """Neither NaN nor ±inf: a NaN is not less than anything."""
    return tl.abs(x.to(tl.float32)) < float("inf")


@triton.jit
def contained(average, weight, v_tile, seen):
    """The product of weight and v_tile, added to average; what is not finite reaches only rows that see its key.

    Such numbers are taken out before the product, and put back where they may be seen: an inf as an inf. average
    (rows, d_v), weight and seen (rows, keys), v_tile (keys, d_v).
    """
    clean = tl.where(is_finite(v_tile), v_tile, 0.0).to(v_tile.dtype)
    average = tl.dot(weight.to(v_tile.dtype), clean, average, input_precision="ieee")
    wide = v_tile.to(tl.float32)
    average = put_back(average, seen, wide == float("inf"), float("inf"))
    average = put_back(average, seen, wide == float("-inf"), float("-inf"))
    return put_back(average, seen, wide != wide, float("nan"))


@triton.jit
def put_back(average, seen, where, special):
    """`special` is added to each component of which a row sees a key that has it there."""
    reached = tl.dot(seen.to(tl.float16), where.to(tl.float16)) > 0.0
    return tl.where(reached, average + special, average)
