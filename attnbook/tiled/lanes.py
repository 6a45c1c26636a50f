"""How many heads of how many sequences go through one product, and the views that make it so.

A *lane* is one key/value head of one sequence with the group of query heads that share it. Queries of a group become
more rows against the same keys, so K and V are never repeated:

    q (b, n_heads, t_q, d)  ->  (lanes, group, t_q, d)      k (b, n_kv_heads, t_kv, d)  ->  (lanes, t_kv, d)

A stack of lanes lies along the heads of one sequence, or along the sequences of one head: along a single axis of the
input, so that everything here is a view, whatever the strides, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.shapes import AttentionSizes


@dataclass(frozen=True)
class Stack:
    """Lanes that are calculated together: some sequences of one head, or some heads of one sequence."""

    sequences: slice
    kv_heads: slice
    n_kv_heads: int
    group: int

    def of_keys(self, x: Tensor) -> Tensor:
        """The part of x (b, n_kv_heads, …) of these lanes, (lanes, …), a view."""
        return x[self.sequences, self.kv_heads].flatten(0, 1)

    def of_queries(self, x: Tensor) -> Tensor:
        """The part of x (b, n_heads, …) of these lanes, (lanes, group, …), a view. Broadcast axes keep length 1."""
        if x.shape[0] > 1:
            x = x[self.sequences]
        if x.shape[1] == self.n_kv_heads * self.group:
            x = torch.unflatten(x, 1, (self.n_kv_heads, self.group))[:, self.kv_heads]
        else:
            x = x.unsqueeze(2)
        return x.flatten(0, 1)


def stacks(sizes: AttentionSizes, most: int) -> Iterator[Stack]:
    """All lanes, at most `most` in a stack."""
    b, n_kv_heads = sizes.b, sizes.n_kv_heads
    group = sizes.n_heads // n_kv_heads if n_kv_heads else 1
    along_heads = n_kv_heads >= b
    for one in range(b if along_heads else n_kv_heads):
        alone = slice(one, one + 1)
        for start in range(0, n_kv_heads if along_heads else b, most):
            many = slice(start, start + most)
            yield Stack(alone, many, n_kv_heads, group) if along_heads else Stack(many, alone, n_kv_heads, group)


def tile_of(x: Tensor, start: int, stop: int, axis: int) -> Tensor:
    """From `start` to `stop` along an axis; an axis of length 1 that stands for its repetition stays as it is."""
    return x if x.shape[axis] == 1 else x.narrow(axis, start, stop - start)
