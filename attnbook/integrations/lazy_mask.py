"""A boolean mask that is said in words and made only if somebody reads it.

A causal mask over n tokens is n² booleans that two words say as well: `is_causal=True`, or three, with a window. Such
words can be followed tile by tile, and what no query may see is never visited. But a mask that travels through another
library's code must be a tensor, and be right, whatever that code does with it. So this one is a tensor to everybody:
the first operation on it, a slice, a comparison, a move to a device, makes the booleans, and goes on with those.

And from then on the booleans are what counts (`words` is None), because they may have been written to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


@dataclass(frozen=True)
class Words:
    """What a mask says, as options of `attnbook.attention`."""

    is_causal: bool
    """Aligned bottom-right over the first `t_kv` keys."""
    window: int | None
    t_kv: int
    """Later keys are hidden from all queries: the unused end of a cache of fixed capacity."""
    keys: Tensor | None
    """Which of the first t_kv keys are tokens and which are filling, (b, 1, 1, t_kv) booleans; None: all tokens."""
    cu_seqlens: Tensor | None = None
    """Where the batch, its rows one after another, begins a new sequence; None: every row is one sequence."""


class LazyMask(Tensor):
    """Booleans (b, 1, t_q, t_kv), True = may attend, that `make` gives when they are needed."""

    _words: Words
    _make: Callable[[], Tensor]
    _made: Tensor | None

    def __new__(
        cls, words: Words, make: Callable[[], Tensor], *, shape: tuple[int, int, int, int], device: torch.device | str
    ) -> LazyMask:
        """A mask of this shape that says `words`, which are what `make()` would be."""
        mask: LazyMask = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=torch.device(device))
        mask._words, mask._make, mask._made = words, make, None
        return mask

    @property
    def words(self) -> Words | None:
        """What the mask says; None once it has been made, and may have been changed."""
        return self._words if self._made is None else None

    def made(self) -> Tensor:
        """The booleans; made at the first call, the same tensor ever after."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Without making the booleans."""
        return f"LazyMask({self._words if self._made is None else self._made})"

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operation acts on the booleans."""
        args, kwargs = tree_map_only(LazyMask, LazyMask.made, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))
