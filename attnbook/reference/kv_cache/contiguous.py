"""The plain cache: every position in order, in one block of memory.

    capacity 8, length 5       k0 k1 k2 k3 k4 .. .. ..       append writes here ^, `.k` is a view of the first five

Where the block is full, a new one of twice the size takes over: copying costs, spread over all tokens, at most two
copies each. With a fixed `capacity` it never moves, and an append that does not fit is an error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.reference.kv_cache.checks import check_append, check_batch, check_whole, empty_like


class KVCache:
    """Keys and values of all tokens so far; all sequences of the batch have the same length.

    `capacity`: how many positions there is room for; None grows. Raises ValueError for a capacity below 1.
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None:
            check_whole("capacity", capacity, 1)
        self.capacity = capacity
        self._length = 0
        self._memory: tuple[Tensor, Tensor] | None = None  # (b, h, room, d) and (b, h, room, d_v)

    def append(self, k: Tensor, v: Tensor) -> None:
        """Keep the keys (b, n_kv_heads, t_new, d) and values (b, n_kv_heads, t_new, d_v) of the next t_new positions.

        Raises ShapeError where they don't fit one another or what is stored, or overflow the capacity; DTypeError,
        and ValueError for another device. The cache is then what it was.
        """
        check_append(k, v, self._memory)
        if self._memory is not None:
            check_batch(k.shape[0], self._memory[0].shape[0])
        new = self._length + k.shape[2]
        if self.capacity is not None and new > self.capacity:
            raise ShapeError(
                f"k has length {k.shape[2]} (axis t) but the cache holds {self._length} of at most {self.capacity} "
                f"positions: expected at most {self.capacity - self._length}"
            )
        self._memory = self._with_room(new, k, v)
        for memory, x in zip(self._memory, (k, v), strict=True):
            memory[:, :, self._length : new] = x.detach()
        self._length = new

    def _with_room(self, length: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The memory, moved to a larger block if `length` positions don't fit."""
        room = self._memory[0].shape[2] if self._memory is not None else 0
        if self._memory is not None and length <= room:
            return self._memory
        room = self.capacity or max(length, 2 * room)
        larger = tuple(empty_like(x, (*x.shape[:2], room, x.shape[3])) for x in (k, v))
        if self._memory is not None:
            for new, old in zip(larger, self._memory, strict=True):
                new[:, :, : self._length] = old[:, :, : self._length]
        return larger[0], larger[1]

    @property
    def k(self) -> Tensor:
        """The keys (b, n_kv_heads, length, d) in order of position: a view, valid until the next append.

        Raises ValueError before the first append, for until then there are no sizes.
        """
        return self._stored()[0][:, :, : self._length]

    @property
    def v(self) -> Tensor:
        """The values (b, n_kv_heads, length, d_v), like `k`."""
        return self._stored()[1][:, :, : self._length]

    def _stored(self) -> tuple[Tensor, Tensor]:
        if self._memory is None:
            raise ValueError("the cache is empty: append keys and values first")
        return self._memory

    @property
    def lengths(self) -> Tensor:
        """How many tokens each sequence has, (b,) int64 on the device of k; (0,) before the first append."""
        if self._memory is None:
            return torch.zeros(0, dtype=torch.int64)
        return torch.full((self._memory[0].shape[0],), self._length, device=self._memory[0].device)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, used or not."""
        return sum(x.nbytes for x in self._memory or ())

    def __repr__(self) -> str:
        """The shapes of k and v, how many positions there is room for, and the dtype."""
        if self._memory is None:
            return f"KVCache(capacity={self.capacity}, empty)"
        k, v = self.k, self.v
        return f"KVCache(k={tuple(k.shape)}, v={tuple(v.shape)}, room={self._memory[0].shape[2]}, dtype={k.dtype})"

    def __len__(self) -> int:
        """The tokens of each sequence."""
        return self._length

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on, as after a guess that was refused. Memory stays.

        Raises ValueError for a length below 0 or above the present one.
        """
        check_whole("length", length, 0, self._length, why=", the present length")
        self._length = int(length)

    def reset(self) -> None:
        """Forget every token; sizes and memory stay."""
        self._length = 0
