"""Tensors whose tiles the hardware copies by itself (TMA, sm_90 and later): which can be, and how they are described.

What stands out: a descriptor knows where a tensor ends and fills what lies beyond with zeros, but it knows nothing of
the sequences that are packed in it. Behind the last row of one lies the next, so a tile at its end holds rows of a
stranger: kernels hide those, and where one of them is NaN or infinite (0 · NaN is NaN) calculate again, by pointers.

Where the memory lies so that one can, forward, the gradients of q, k and v, and decoding read by descriptor what they
walk over, packed calls too, and the experts' kernels their matrices. Pointers stay where they are right:

- what is read or written once, as a program's own queries and its result: a tile written whole at the end of a packed
  sequence would overwrite the next one's rows;
- decoding from pages that hold no whole tile, for pages lie scattered and a copied tile is of one page, and behind a
  window, where the first tile begins anywhere (`attnbook.kernels.decode.configs.in_whole_tiles`);
- careful walks, which must tell what is there from what is not; masks, whose axes may be broadcast; attention forward
  and backward in float32, multiplied out of registers;
- on Hopper the gradient of q for heads of 256 without mask, softcap and slopes: with descriptors causal ones spill
  (`attnbook.kernels.flash.backward_configs`).
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
