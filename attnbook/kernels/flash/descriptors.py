"""Tensors whose tiles the hardware copies by itself (TMA, sm_90 and later): which can be, and how they are described.

What stands out: a descriptor knows where a tensor ends and fills what lies beyond with zeros, but it knows nothing of
the sequences that are packed in it. Behind the last row of one lies the next, so a tile at its end holds rows of a
stranger: kernels hide those, and where one of them is NaN or infinite (0 · NaN is NaN) calculate again, by pointers.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def takes_descriptor(x: Tensor) -> bool:
    """Can the hardware copy whole tiles of (b, h, t, d)? Rows lie at multiples of 16 bytes, nothing is repeated."""
    aligned = x.data_ptr() % 16 == 0 and all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:3])
    return aligned and x.stride(3) == 1 and min(x.shape) > 0 and min(x.stride()) > 0


def descriptor(x: Tensor, rows: int, columns: int) -> Any:
    """A descriptor of (b, h, t, d), for tiles of so many rows of one head; packed: b is 1."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, columns])
