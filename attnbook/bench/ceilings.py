"""What the card itself can do, measured: copying memory, and multiplying large matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnbook.bench.case import Finding, Setting, Sides, in_turns

COPIED = 1 << 30
"""Bytes of the memory that is copied: many times the largest cache."""
SIDE = 8_192
"""Of the square matrices."""
PREFIX = {"TFLOP/s": 1e12, "GB/s": 1e9}
"""Of the units of rates."""


class Ceiling(NamedTuple):
    """A call that does nothing but what the card is best at, and how much of it a call does."""

    run: Callable[[], Tensor]
    amount: int
    """Bytes, or floating-point operations."""


def copying(setting: Setting) -> Ceiling:
    """A copy from memory to memory: each byte is read once and written once."""
    n = COPIED if not setting.quick else COPIED >> 9
    source = torch.zeros(n, dtype=torch.uint8, device=setting.device)
    target = torch.empty_like(source)
    return Ceiling(lambda: target.copy_(source), 2 * n)


def multiplying(setting: Setting, dtype: str) -> Ceiling:
    """A product of two square matrices by torch; standard normal numbers, for zeros draw less power and run faster."""
    n = setting.length(SIDE) if not setting.quick else 256
    generator = torch.Generator(setting.device).manual_seed(0)
    how: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": setting.device, "generator": generator}
    a, b = (torch.randn(n, n, **how) for _ in "ab")
    out = torch.empty_like(a)
    return Ceiling(lambda: torch.mm(a, b, out=out), 2 * n**3)


def copy(setting: Setting) -> Finding:
    """GB/s of reading and writing together."""
    return _finding(setting, "copy", copying(setting), "GB/s")


def matmul(dtype: str) -> Callable[[Setting], Finding]:
    """TFLOP/s of a square product."""

    def run(setting: Setting) -> Finding:
        return _finding(setting, "mm", multiplying(setting, dtype), "TFLOP/s")

    return run


def _finding(setting: Setting, name: str, ceiling: Ceiling, unit: str) -> Finding:
    sides: Sides = {name: ceiling.run}
    times = in_turns(sides, setting)
    seconds = times.medians()[name]
    rate = ceiling.amount / seconds / PREFIX[unit]
    return Finding(rate, {name: seconds}, rates={name: rate}, rate_unit=unit, spread=rate * times.spread(name),
                   ran="torch")  # fmt: skip
