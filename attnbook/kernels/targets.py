"""The GPUs that the kernels are written for, and the limits that decide tile sizes.

What stands out: a configuration is chosen in plain Python from a `Target`, so the same function answers for the GPU at
hand and for one that is not there, whose kernels are compiled and looked at without it. All numbers are from NVIDIA's
CUDA C++ Programming Guide, the table "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.kernels.available import interpreting

KIB = 1024


@dataclass(frozen=True)
class Target:
    """One kind of GPU, or Triton's interpreter (capability (0, 0), which has no limits)."""

    name: str
    capability: tuple[int, int]
    shared_bytes: int
    """Shared memory that one block (one program of a kernel) may have, at most."""
    shared_bytes_per_sm: int
    """Shared memory of a multiprocessor, for all blocks that are on it."""
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_warp: int = 32
    reserved_shared_bytes: int = KIB
    """What the system keeps for itself of each block's share."""

    @property
    def interpreted(self) -> bool:
        return self.capability == (0, 0)

    @property
    def has_descriptors(self) -> bool:
        """Does it copy whole tiles by itself (TMA, from Hopper on)?"""
        return self.capability >= (9, 0)

    @property
    def matrix_instruction(self) -> str:
        """The matrix product that the compiler should reach for half precision, as PTX spells it."""
        return {9: "wgmma.mma_async", 10: "tcgen05.mma"}.get(self.capability[0], "mma.sync")


SM_80 = Target("sm_80", (8, 0), shared_bytes=163 * KIB, shared_bytes_per_sm=164 * KIB)  # A100
SM_90 = Target("sm_90", (9, 0), shared_bytes=227 * KIB, shared_bytes_per_sm=228 * KIB)  # H100, H200
SM_100 = Target("sm_100", (10, 0), shared_bytes=227 * KIB, shared_bytes_per_sm=228 * KIB)  # B200

TARGETS = (SM_80, SM_90, SM_100)

INTERPRETER = Target("interpreter", (0, 0), shared_bytes=1 << 40, shared_bytes_per_sm=1 << 40)


def target_of(device: torch.device) -> Target:
    """The target that a launch on this device is for."""
    if interpreting():
        return INTERPRETER
    return _of_gpu(torch.cuda.current_device() if device.index is None else device.index)


@functools.cache
def _of_gpu(index: int) -> Target:
    """One of `TARGETS`; for another GPU (8.6, 8.9, 12.0 have less shared memory) what its driver says."""
    capability = torch.cuda.get_device_capability(index)
    for target in TARGETS:
        if target.capability == capability:
            return target
    properties: Any = torch.cuda.get_device_properties(index)
    return Target(
        f"sm_{capability[0]}{capability[1]}",
        capability,
        shared_bytes=properties.shared_memory_per_block_optin,
        shared_bytes_per_sm=properties.shared_memory_per_multiprocessor,
        threads_per_sm=properties.max_threads_per_multi_processor,
    )


def on_device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Within it kernels are launched where the tensor is: Triton takes the current device, which may be another GPU.

    Call it as `targets.on_device_of(…)`: a name imported from here would not be replaced in tests.
    """
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()
