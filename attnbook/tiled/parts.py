"""Attention to some of the keys at a time, and how such partial results make the whole.

Each part is a softmax by itself. It leaves, for each row, the largest score, `top`, the sum of exp(score − top),
`total`, and the average of its values; any number of parts make one:

    top     = max of the tops
    share   = total of the part · exp(top of the part − top)
    total   = Σ share
    average = Σ share · average of the part / total              and in the end lse = top + log total

The order does not matter, so parts are kept until there are many and merged together, not one by one: then a part
costs its two products, its softmax and little else. A sink is a part too, with a score and without values.
Milakov and Gimelshein 2018; Dao et al. 2022 (algorithm 1); Dao et al. 2023 (Flash-Decoding).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.tiled.prepare import Scratch
from attnbook.tiled.products import product

NUMBERS = 1 << 20
"""How many numbers of averages are kept before they are merged, about: 4 MiB of float32."""


class Parts:
    """The parts of some rows, kept and merged. Everything has the shape (lanes, rows, …)."""

    def __init__(
        self,
        scratch: Scratch,
        shape: tuple[int, int, int],
        sink: Tensor | None,
        tiles: int,
        place: Tensor | None = None,
    ) -> None:
        """Room for averages of this shape (lanes, rows, d_v), at most one for each of so many tiles of keys.

        `sink` (lanes, rows, 1): a score that each row has seen before the first key. `place` (lanes, rows, d_v): where
        the average of a single tile of keys is to lie, without a sink; `whole` returns it.
        """
        lanes, rows, d_v = shape
        most = min(max(NUMBERS // max(lanes * rows * d_v, 1), 2), tiles + 1) if place is None else 1
        self.scratch = scratch
        self.tops = scratch.take("tops", (most, lanes, rows, 1))
        self.totals = scratch.take("totals", (most, lanes, rows, 1))
        self.averages = scratch.take("averages", (most, lanes, rows, d_v)) if place is None else place[None]
        self.n = 0
        self.certain = True
        """Has every row seen a key in every part so far?"""
        if sink is not None:  # one of −inf is as good as none
            self._keep(sink, (sink != -torch.inf).to(sink.dtype), 0.0)
            self.certain = False

    def add(self, score: Tensor, v: Tensor, *, certain: bool, seen: Tensor | None = None) -> None:
        """One more part, from its scores (lanes, rows, columns) and values (lanes, columns, d_v).

        The weights take the place of the scores. `certain`: no row's scores are all −inf. The largest weight is
        exp(0) / total, which gives the total without another pass over the scores. `seen` is what `product` takes.
        """
        if self.n == len(self.tops):
            self._merge()
        top, total, average = self.tops[self.n], self.totals[self.n], self.averages[self.n]
        self.n += 1
        torch.amax(score, -1, keepdim=True, out=top)
        weight = torch.softmax(score, -1, out=score)
        torch.amax(weight, -1, keepdim=True, out=total).reciprocal_()
        if not certain:
            self.certain = False
            nothing = top == -torch.inf
            weight.masked_fill_(nothing, 0.0)
            total.masked_fill_(nothing, 0.0)
        if seen is None:
            torch.bmm(weight, v, out=average)
        else:
            average.copy_(product(weight, v, seen))

    def whole(self) -> tuple[Tensor, Tensor]:
        """All parts together: the average (lanes, rows, d_v), and lse (lanes, rows, 1), −inf where nothing was seen."""
        if self.n == 1 and self.certain:
            return self.averages[0], self.totals[0].log_().add_(self.tops[0])
        if self.n == 0:
            return self.averages[0].zero_(), self.tops[0].fill_(-torch.inf)
        self._merge()
        return self.averages[0], self.totals[0].log_().add_(self.tops[0])  # log 0 is −inf

    def _merge(self) -> None:
        """Make one part of all."""
        tops, totals, averages = (x[: self.n] for x in (self.tops, self.totals, self.averages))
        if not self.certain:  # the lowest finite number stands for the top of nothing: it can be taken from itself
            tops.clamp_(min=torch.finfo(tops.dtype).min)
        top = tops.amax(0)
        share = tops.sub_(top).exp_().mul_(totals)
        total = share.sum(0)
        average = averages.mul_(share).sum(0).div_(total.masked_fill(total == 0, 1.0))  # nothing seen: 0 / 1
        self.n = 0
        self._keep(top, total, average)

    def _keep(self, top: Tensor, total: Tensor, average: Tensor | float) -> None:
        self.tops[self.n], self.totals[self.n], self.averages[self.n] = top, total, average
        self.n += 1
