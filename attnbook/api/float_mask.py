"""A mask as torch's kernel reads it: numbers that are added to the scores, in q's dtype, with 2 or 4 axes.

What stands out: a boolean mask becomes one of numbers in memory that is kept from call to call. A megabyte of fresh
memory costs more to enter, page by page, than the whole conversion: at 512 tokens 2 to 8 % of the attention that waits
for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

KEPT = 1 << 22
"""Bytes of the largest mask whose memory is kept; above, the attention itself takes so long that it does not matter."""

BITS = {
    torch.float64: (torch.int64, 1 << 52),
    torch.float32: (torch.int32, 1 << 23),
    torch.float16: (torch.int16, 1 << 10),
    torch.bfloat16: (torch.int16, 1 << 7),
}
"""Of each float the whole number of its size, and `one`, the lowest bit of its exponent."""

MINUS_ONE = {dtype: torch.tensor(-one, dtype=whole, device="cpu") for dtype, (whole, one) in BITS.items()}

_kept: list[Tensor] = []
"""At most one mask of numbers that nobody reads now. Who takes it out has it alone, on whatever thread."""


def added(mask: Tensor | None, dtype: torch.dtype, place: Tensor | None = None) -> Tensor | None:
    """What a mask adds to the scores of a q of this dtype; the kernel asks for these axes, and misreads some others.

    `place`: what was `borrowed` for it.
    """
    if mask is None:
        return None
    while mask.ndim < 2 or mask.ndim == 3:
        mask = mask[None]
    if mask.dtype == torch.bool:
        return hidden_by(mask, dtype, place)
    return mask if mask.dtype == dtype else mask.to(torch.float32 if dtype.itemsize == 2 else dtype)


def hidden_by(mask: Tensor, dtype: torch.dtype, place: Tensor | None = None) -> Tensor:
    """0 where a boolean mask is True, −inf elsewhere, in half the time of `torch.where`: from the bits of −inf.

    They are ones for the sign and the exponent, which is the whole number −one; 0 is 0: mask · one − one. It is written
    into `place`, where one is given, of the mask's axes and this dtype.
    """
    whole, one = BITS[dtype]
    x = mask.view(torch.uint8).to(whole) if place is None else place.view(whole).copy_(mask)
    if not x.is_cpu:
        return x.mul_(one).sub_(one).view(dtype)
    torch.add(MINUS_ONE[dtype], x, alpha=one, out=x)
    return x.view(dtype) if place is None else place


def borrowed(mask: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Memory for the numbers of a boolean mask that are read once and then given to `give_back`, or None.

    Not for a call that autograd records: it keeps what it has read. None for a mask that is too large, has other axes
    than the kernel reads, or is seen by a mode (a trace, fake tensors).
    """
    if type(mask) is not Tensor or not mask.is_cpu or mask.ndim not in (2, 4) or watched():
        return None
    if mask.numel() * dtype.itemsize > KEPT:
        return None
    try:
        place = _kept.pop()
    except IndexError:
        place = None
    if place is None or place.shape != mask.shape or place.dtype is not dtype:
        with torch.inference_mode(False):  # a tensor of inference could not be written to outside of it
            place = torch.empty(mask.shape, dtype=dtype, device="cpu")
    return place


def give_back(place: Tensor) -> None:
    """What was borrowed is read no more."""
    if not _kept:
        _kept.append(place)


def watched() -> bool:
    """Is a mode at work that sees each operation?"""
    return bool(torch._C._len_torch_dispatch_stack())
