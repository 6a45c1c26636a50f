"""Which packed sequences are calculated together, and how they get into the layout `(b, h, t, d)` and back.

Sequences of equal length form a batch. Where they lie one after another the batch is a view and costs nothing, so long
ones are batched only there; short ones are collected from wherever they lie, because for them the loop costs more than
the copy:

    lengths   5 5 5 3 4 3        short:  (5 5 5) (3 3) (4)
                                 long:   (5 5 5) (3) (4) (3)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.tiled.plan import Range

SHORT = 128
"""Queries or keys up to which sequences are collected from anywhere."""


@dataclass(frozen=True)
class Batch:
    """Sequences of equal length: their numbers, and for q and for k where each one starts and their common length."""

    sequences: list[int]
    starts_q: list[int]
    t_q: int
    starts_k: list[int]
    t_kv: int

    def queries(self, x: Tensor) -> Tensor:
        """The rows of x (t, h, …) that are queries here, as (b, h, t_q, …)."""
        return _take(x, self.starts_q, self.t_q)

    def keys(self, x: Tensor) -> Tensor:
        """The rows of x (t, h, d) that are keys here, as (b, h, t_kv, d)."""
        return _take(x, self.starts_k, self.t_kv)

    def put_queries(self, into: Tensor, x: Tensor) -> None:
        """Write x (b, h, t_q, …) to its rows of `into` (t, h, …)."""
        _put(into, x, self.starts_q, self.t_q)

    def put_keys(self, into: Tensor, x: Tensor) -> None:
        """Write x (b, h, t_kv, d) to its rows of `into` (t, h, d)."""
        _put(into, x, self.starts_k, self.t_kv)

    def slopes(self, x: Tensor | None) -> Tensor | None:
        """The slopes (h,) or (sequences, h) of these sequences, (h,) or (b, h)."""
        return x if x is None or x.ndim == 1 else x[self.sequences]

    def block(self) -> tuple[Range, Range]:
        """The queries and the keys of the one sequence of a batch of one."""
        q, k = self.starts_q[0], self.starts_k[0]
        return (q, q + self.t_q), (k, k + self.t_kv)


def batches(cu_q: Sequence[int], cu_k: Sequence[int], *, alone: bool = False) -> list[Batch]:
    """All sequences that have a query or a key, in batches of equal length; `alone`: one in each."""
    made: list[Batch] = []
    short: dict[tuple[int, int], Batch] = {}
    for n in range(len(cu_q) - 1):
        (start_q, end_q), (start_k, end_k) = cu_q[n : n + 2], cu_k[n : n + 2]
        lengths = end_q - start_q, end_k - start_k
        if lengths == (0, 0):
            continue
        if max(lengths) <= SHORT:
            joined = short.get(lengths)
        else:
            joined = made[-1] if made and _continues(made[-1], n, *lengths) else None
        if joined is None or alone:
            joined = Batch([], [], lengths[0], [], lengths[1])
            made.append(joined)
            if max(lengths) <= SHORT:
                short[lengths] = joined
        joined.sequences.append(n)
        joined.starts_q.append(start_q)
        joined.starts_k.append(start_k)
    return made


def _continues(batch: Batch, n: int, t_q: int, t_kv: int) -> bool:
    """Is sequence n, with these lengths, the next one of the batch?"""
    return batch.sequences[-1] == n - 1 and (batch.t_q, batch.t_kv) == (t_q, t_kv)


def _rows(starts: list[int], t: int) -> slice | list[int]:
    """The packed rows of all sequences, one after another: a slice where they lie so."""
    if all(b - a == t for a, b in itertools.pairwise(starts)):
        return slice(starts[0], starts[0] + len(starts) * t)
    return [start + i for start in starts for i in range(t)]


def _take(x: Tensor, starts: list[int], t: int) -> Tensor:
    return x[_rows(starts, t)].reshape(len(starts), t, *x.shape[1:]).transpose(1, 2)


def _put(into: Tensor, x: Tensor, starts: list[int], t: int) -> None:
    rows = _rows(starts, t)
    if isinstance(rows, slice):
        into[rows].view(len(starts), t, *into.shape[1:]).copy_(x.transpose(1, 2))
    else:
        into[torch.tensor(rows, dtype=torch.long, device=into.device)] = x.transpose(1, 2).flatten(0, 1)
