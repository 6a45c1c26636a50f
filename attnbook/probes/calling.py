"""How a probe calls what it probes, and how far two of its outputs lie apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.probes.report import Finding

Function = Callable[[Tensor], Any]
"""A module in evaluation mode or any function: (b, t, ...) -> (b, t, ...), or what holds such a tensor."""


def call(fn: Function, x: Tensor, *, axes: int = 2) -> Tensor:
    """The output of fn for a copy of x, as a copy; its first axes are those of x.

    Of a tuple the first tensor counts, of an object with `logits` or `last_hidden_state` (Hugging Face) that one.
    Raises ShapeError for anything else.
    """
    out = _tensor_of(fn(x.clone()))
    if not isinstance(out, Tensor) or out.shape[:axes] != x.shape[:axes]:
        came = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        named = ("(b, ...)", "b") if axes == 1 else ("(b, t, ...)", "(b, t)")
        raise ShapeError(f"fn returned {came}: expected a tensor {named[0]} with {named[1]} = {tuple(x.shape[:axes])}")
    return out.clone()


def _tensor_of(out: Any) -> Any:
    if isinstance(out, Tensor):
        return out
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := getattr(out, name, None), Tensor):
            return found
    return out[0] if isinstance(out, tuple | list) and out and isinstance(out[0], Tensor) else out


def distance(out: Tensor, before: Tensor) -> Tensor:
    """|out − before| of every number, 0 where both are the same inf, and inf where a NaN was not there before."""
    difference = (out.double() - before.double()).abs()
    difference = torch.where((out == before) | (out.isnan() & before.isnan()), 0.0, difference)
    return difference.nan_to_num(nan=torch.inf, posinf=torch.inf)


def by_position(difference: Tensor) -> Tensor:
    """The largest of each position: (b, t, ...) -> (t,)."""
    return difference.transpose(0, 1).flatten(1).amax(1)


def rounding(out: Tensor) -> float:
    """A distance well above what another order of sums makes, and below what other numbers make: √ε · max |out|."""
    return float(torch.finfo(out.dtype).eps ** 0.5 * out.abs().amax().double()) if out.is_floating_point() else 0.0


def few_roundings(out: Tensor) -> float:
    """What a sum in another order may move at most, without anything else: 8 ε · max |out|."""
    return float(8 * torch.finfo(out.dtype).eps * out.abs().amax().double()) if out.is_floating_point() else 0.0


def unusable(before: Tensor, again: Tensor) -> list[Finding]:
    """What would make a comparison worthless: a NaN from the start, or two outputs for one input (dropout)."""
    nan = by_position(before.isnan().double()) > 0
    if nan.any():
        i = int(nan.nonzero()[0])
        return [Finding("nan", f"output {i} is NaN before anything was changed", output=i, amount=torch.inf)]
    moved = by_position(distance(again, before))
    if (moved > 0).any():
        text = f"the same x gave outputs that differ by {float(moved.max()):.2g}: switch off dropout, fn.eval()"
        return [Finding("not repeatable", text, output=int(moved.argmax()), amount=float(moved.max()))]
    return []
