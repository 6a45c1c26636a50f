"""Tensors whose numbers lie so far apart that 32 bits cannot count the way."""

import mmap

import torch

from tests.kernels.device import DEVICE

NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Linux's flag; Python knows its name from 3.13 on."""

STRIDE = 2**30


def far_apart(tensors, axis):
    """The same small tensors, of one dtype, with a stride of 2³⁰ along one axis of length 3: the last is 2³¹ away.

    On a CPU the memory is promised by the system and, but for a few pages, never taken.
    """
    dtype = tensors[0].dtype
    size = 2 * STRIDE + 128 * len(tensors)
    if DEVICE == "cuda":
        memory = torch.empty(size, dtype=dtype, device=DEVICE)
    else:
        room = mmap.mmap(-1, size * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        memory = torch.frombuffer(room, dtype=torch.uint8).view(dtype)
    far = []
    for i, x in enumerate(tensors):
        strides = list(x.contiguous().stride())
        strides[axis] = STRIDE
        assert x.shape[axis] == 3
        assert x.numel() <= 128
        far.append(memory.as_strided(x.shape, strides, storage_offset=128 * i))
        far[-1].copy_(x)
    return far
