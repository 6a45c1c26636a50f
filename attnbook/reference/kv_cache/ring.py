"""The cache for sliding windows: what no later query may see is overwritten.

    window 3, one token at a time      slot = position mod 3
    after position 4                   k3 k4 k2       .k is k2 k3 k4
    after position 5                   k3 k4 k5       .k is k3 k4 k5

A chunk needs more. Its first query still sees window − 1 older keys, its last one the newest, so that until the next
append window − 1 + t_new positions are kept, in as many slots. (A cache that cuts a chunk to its last `window` keys
is right for the next token and wrong for the chunk itself.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.reference.kv_cache.checks import check_append, check_batch, check_whole, empty_like


class RingKVCache:
    """Keys and values of the last tokens: for every query of the last append, the `window` keys that it may see.

    `window` counts keys, the query's own included. Raises ValueError for a window below 1.
    """

    def __init__(self, window: int) -> None:
        check_whole("window", window, 1)
        self.window = int(window)
        self._first = 0  # the oldest position kept
        self._length = 0  # the next position
        self._slots: tuple[Tensor, Tensor] | None = None  # position p is at [:, :, p % slots]

    def append(self, k: Tensor, v: Tensor) -> None:
        """Keep the keys (b, n_kv_heads, t_new, d) and values (b, n_kv_heads, t_new, d_v) of the next t_new positions.

        Raises ShapeError, DTypeError or ValueError where they don't fit one another or what is stored. The cache is
        then what it was. A chunk without tokens changes nothing.
        """
        check_append(k, v, self._slots)
        if self._slots is not None:
            check_batch(k.shape[0], self._slots[0].shape[0])
            if k.shape[2] == 0:
                return
        first = max(self._first, self._length - (self.window - 1))
        t_new, n_slots = k.shape[2], self.window - 1 + max(k.shape[2], 1)
        if self._slots is None or self._slots[0].shape[2] != n_slots:
            larger = tuple(empty_like(x, (*x.shape[:2], n_slots, x.shape[3])) for x in (k, v))
            old = self._positions(first, self._length, n_slots, k.device)
            for new, kept in zip(larger, self._ordered(first), strict=False):
                new[:, :, old] = kept
            self._slots = (larger[0], larger[1])
        at = self._positions(self._length, self._length + t_new, n_slots, k.device)
        for slots, x in zip(self._slots, (k, v), strict=True):
            slots[:, :, at] = x.detach()
        self._first, self._length = first, self._length + t_new

    @staticmethod
    def _positions(start: int, end: int, n_slots: int, device: torch.device) -> Tensor:
        """The slots of the positions from start to end."""
        return torch.arange(start, end, device=device) % n_slots

    def _ordered(self, first: int) -> tuple[Tensor, ...]:
        """Copies of what is kept from position `first` on, in order."""
        if self._slots is None:
            return ()
        at = self._positions(first, self._length, self._slots[0].shape[2], self._slots[0].device)
        return tuple(slots[:, :, at] for slots in self._slots)

    @property
    def k(self) -> Tensor:
        """The keys kept, (b, n_kv_heads, min(length, window − 1 + t_new), d), in order of position: a copy.

        They are the last ones: with t_new the tokens of the last append, position `lengths` − 1 at the end. Raises
        ValueError before the first append.
        """
        return self._kept()[0]

    @property
    def v(self) -> Tensor:
        """The values kept, like `k`."""
        return self._kept()[1]

    def _kept(self) -> tuple[Tensor, ...]:
        if self._slots is None:
            raise ValueError("the cache is empty: append keys and values first")
        return self._ordered(self._first)

    @property
    def lengths(self) -> Tensor:
        """How many tokens each sequence has had, kept or not, (b,) int64; (0,) before the first append."""
        if self._slots is None:
            return torch.zeros(0, dtype=torch.int64)
        return torch.full((self._slots[0].shape[0],), self._length, device=self._slots[0].device)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: window positions after single tokens, window − 1 + t_new after a chunk."""
        return sum(x.nbytes for x in self._slots or ())

    def __repr__(self) -> str:
        """The window, how many tokens have been, the shapes of k and v without t, slots for t, and the dtype."""
        if self._slots is None:
            return f"RingKVCache(window={self.window}, empty)"
        k, v = self._slots
        sizes = f"b={k.shape[0]}, n_kv_heads={k.shape[1]}, d={k.shape[3]}, d_v={v.shape[3]}"
        return f"RingKVCache(window={self.window}, length={self._length}, {sizes}, room={k.shape[2]}, dtype={k.dtype})"

    def __len__(self) -> int:
        """The tokens that each sequence has had, kept or not."""
        return self._length

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on, as after a guess that was refused.

        As far back as the last append, always; further only while nothing has been overwritten. Raises ValueError
        beyond that, or for a length above the present one: window − 1 older keys must remain.
        """
        low = 0 if self._first == 0 else self._first + self.window - 1
        check_whole("length", length, low, self._length, why=", what is kept of the present length")
        self._length = int(length)

    def reset(self) -> None:
        """Forget every token; sizes and memory stay."""
        self._first = self._length = 0
