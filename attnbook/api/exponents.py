"""Is every number finite? Answered from the bytes of the exponents, read where they lie.

What stands out is why: the look comes right after a kernel that has filled the caches with other things, and there an
operation of torch costs some 40 µs, however small. Adding up a row takes three of them. Reading bytes through `ctypes`
takes none, and is half as dear. "No" only means that it is not sure: a number may be huge, or of another kind.
"""

from __future__ import annotations

import sys
from ctypes import string_at

import torch
from torch import Tensor

NUMBER = {torch.float32: 4, torch.bfloat16: 2} if sys.byteorder == "little" else {}
"""Bytes of a number whose last byte is the sign and the upper seven of eight bits of the exponent."""

MOST = 1 << 16
"""More bytes than these are better read by torch."""


def surely_finite(x: Tensor) -> bool:
    """Is it sure that all numbers of x, a few that lie side by side, are below 2¹²⁷, so that none is NaN or inf?

    In any order of axes. Raises RuntimeError for a tensor without memory of its own, as those inside a transform of
    torch.func.
    """
    size, n = NUMBER.get(x.dtype), 1
    for stride, length in sorted(zip(x.stride(), x.shape, strict=True)):
        if stride != n and length != 1:
            return False
        n *= length
    return size is not None and n * size <= MOST and _small(x.data_ptr(), n, size)


def ends_surely_finite(out: Tensor) -> bool:
    """The same for the last query's output of every head; out (b, n_heads, t_q, d_v), on the CPU."""
    size = NUMBER.get(out.dtype)
    (b, n_heads, t_q, d_v), strides = out.shape, out.stride()
    if size is None or strides[3] != 1 or t_q == 0:
        return False
    row = out.data_ptr() + (t_q - 1) * strides[2] * size
    for sequence in range(b):
        for head in range(n_heads):
            if not _small(row + (sequence * strides[0] + head * strides[1]) * size, d_v, size):
                return False
    return True


def _small(address: int, n: int, size: int) -> bool:
    """Are all of n numbers of so many bytes below 2¹²⁷? 0x7F and 0xFF are the exponents of what is not."""
    exponents = string_at(address, n * size)[size - 1 :: size]
    return not (0x7F in exponents or 0xFF in exponents)
