"""From a tile of queries and a tile of keys to a tile of scores, with every option.

The order is the convention of the whole package: scale, softcap, ALiBi, mask, and −inf where a query may not look.
Everything happens in place, in a buffer that serves tile after tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.tiled.lanes import Stack, tile_of
from attnbook.tiled.plan import KeyTile, QueryTile


@dataclass(frozen=True)
class Options:
    """What is asked for, beside the tensors: already checked."""

    is_causal: bool
    window: int | None
    softcap: float | None
    scale: float
    hidden: float
    """A float mask hides where it is at most this: the lowest finite number of its own dtype or of q's."""


class Scores:
    """The rule that scores follow. A tile of them has the shape (lanes, group, rows, columns)."""

    def __init__(self, options: Options, ahead: int, like: Tensor) -> None:
        self.options = options
        self.ahead = ahead
        """t_kv − t_q: query i stands at the position of key i + ahead."""
        self.like = like
        """A tensor of the device and the dtype to calculate in."""
        self.mask: Tensor | None = None
        self.slopes: Tensor | None = None
        self._edges: dict[tuple[int, int, int], Tensor] = {}

    def enter(self, stack: Stack, mask: Tensor | None, slopes: Tensor | None) -> None:
        """Take the part of the mask (b, h, t_q, t_kv) and of the slopes (b, h), or what broadcasts, of these lanes."""
        self.mask = None if mask is None else stack.of_queries(mask)
        self.slopes = None if slopes is None else stack.of_queries(slopes)[:, :, None, None]

    def hides_all(self, q_tile: QueryTile, k_tile: KeyTile) -> bool:
        """Does the mask hide every key of this tile from every query? Then the tile is not visited."""
        return self.mask is not None and not bool(self.may_attend(q_tile, k_tile).any())

    def every_row_sees(self, q_tile: QueryTile, k_tile: KeyTile) -> bool:
        """Is it sure that every query of the one tile sees a key of the other?"""
        if self.mask is not None or not self.options.is_causal:
            return self.mask is None
        first, last = q_tile.start + self.ahead, q_tile.stop - 1 + self.ahead  # where the queries stand
        return first >= k_tile.start and (self.options.window is None or last - self.options.window < k_tile.stop - 1)

    def tile(
        self,
        q: Tensor,
        k: Tensor,
        q_tile: QueryTile,
        k_tile: KeyTile,
        out: Tensor,
        *,
        contained: bool = True,
        by_key: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The scores of q (lanes, group · rows, d) and k (lanes, columns, d) in `out` (lanes, group · rows, columns).

        `contained`: −inf is put in place of whatever the score of a hidden key is. Otherwise it is added, which is
        quicker and leaves a NaN a NaN. `by_key` (lanes, columns, group · rows) is room for k qᵀ: few queries are
        quicker through it, as it reads k in the order in which it lies.
        -> the scores, and with softcap a copy of them as just capped (else them again).
        """
        if by_key is None:
            torch.baddbmm(out, q, k.mT, beta=0, alpha=self.options.scale, out=out)
        else:
            torch.mul(torch.bmm(k, q.mT, out=by_key).mT, self.options.scale, out=out)
        capped = out
        if self.options.softcap is not None:
            cap = self.options.softcap
            capped = out.div_(cap).tanh_().mul_(cap).clone()
        score = torch.unflatten(out, 1, (-1, q_tile.stop - q_tile.start))  # (lanes, group, rows, columns)
        if self.slopes is not None:
            score.addcmul_(self.slopes, self.distance(q_tile, k_tile), value=-1)
        if self.mask is not None:
            may, mask = self.may_attend(q_tile, k_tile), self._mask_tile(q_tile, k_tile)
            added = self.like.new_zeros(()) if mask.dtype == torch.bool else mask.to(self.like.dtype)
            score.add_(torch.where(may, added, -torch.inf))
        for start, stop in k_tile.edges:
            score[..., start - k_tile.start : stop - k_tile.start].add_(self._edge(q_tile, start, stop))
        if contained:
            out.masked_fill_(~self.seen(q_tile, k_tile, *score.shape[:2]), -torch.inf)
        return out, capped

    def seen(self, q_tile: QueryTile, k_tile: KeyTile, lanes: int, group: int) -> Tensor:
        """May each query of the tile look at each key? Booleans (lanes, group · rows, columns)."""
        seen = self._in_sight(q_tile, k_tile.start, k_tile.stop)  # (rows, columns)
        if self.mask is not None:
            seen = seen & self.may_attend(q_tile, k_tile)
        return seen.expand(lanes, group, *seen.shape[-2:]).flatten(1, 2)

    def distance(self, q_tile: QueryTile, k_tile: KeyTile) -> Tensor:
        """|i + t_kv − t_q − j| of every pair of the tile (rows, columns), in the dtype of the scores."""
        return self._behind(q_tile, k_tile.start, k_tile.stop).abs().to(self.like.dtype)

    def _edge(self, q_tile: QueryTile, start: int, stop: int) -> Tensor:
        """0 where a query sees a key and −inf elsewhere (rows, columns): along a diagonal, tile after tile the same."""
        place = (q_tile.start + self.ahead - start, q_tile.stop - q_tile.start, stop - start)
        if place not in self._edges:
            if len(self._edges) == EDGES_KEPT:
                self._edges.clear()
            seen = self._in_sight(q_tile, start, stop)
            self._edges[place] = torch.where(seen, self.like.new_zeros(()), -torch.inf)
        return self._edges[place]

    def _in_sight(self, q_tile: QueryTile, start: int, stop: int) -> Tensor:
        """May the queries see keys `start` to `stop` − 1, as far as causality and window go? (rows, columns)."""
        behind = self._behind(q_tile, start, stop)
        if not self.options.is_causal:
            return torch.ones_like(behind, dtype=torch.bool)
        seen = behind >= 0
        return seen if self.options.window is None else seen & (behind < self.options.window)

    def _behind(self, q_tile: QueryTile, start: int, stop: int) -> Tensor:
        """How many positions key j lies behind query i: i + t_kv − t_q − j (rows, columns)."""
        i = torch.arange(q_tile.start + self.ahead, q_tile.stop + self.ahead, device=self.like.device)[:, None]
        return i - torch.arange(start, stop, device=self.like.device)

    def may_attend(self, q_tile: QueryTile, k_tile: KeyTile) -> Tensor:
        """The mask's tile as booleans, True = may attend; axes that stand for their repetition have length 1."""
        mask = self._mask_tile(q_tile, k_tile)
        return mask if mask.dtype == torch.bool else ~(mask <= self.options.hidden)  # a NaN hides nothing

    def _mask_tile(self, q_tile: QueryTile, k_tile: KeyTile) -> Tensor:
        assert self.mask is not None
        return tile_of(tile_of(self.mask, q_tile.start, q_tile.stop, 2), k_tile.start, k_tile.stop, 3)


EDGES_KEPT = 8
"""How many tiles of edges are remembered: where sizes divide one another, two or three are all there are."""
