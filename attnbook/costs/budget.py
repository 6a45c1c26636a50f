"""Does it fit: a model's weights and the KV cache of its requests, in the memory that there is; and if not, what would.

    memory of all GPUs − reserve  ≥  weights  +  requests · cache of one request

Weights and cache are taken as split evenly over the GPUs. What a runtime, its activations and fragments of memory take
is not known here: that is what `reserve` is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from attnbook.costs.dtypes import bytes_of, dtype_bits
from attnbook.costs.flops import check_sizes
from attnbook.costs.kv import kv_cache_bytes
from attnbook.costs.memory import weight_bytes
from attnbook.costs.models import find_shape
from attnbook.costs.shape import ModelShape

SMALLER_WEIGHTS = ("float8", "int4")
SMALLER_CACHE = ("float8",)
"""The types that runtimes offer; a cache of 4 bits is not usual, and is left to who asks for it."""

WEIGHTS_NEEDED = "say how large they are"


@dataclass(frozen=True)
class Budget:
    """What one way to serve a model takes: all sizes in bytes, `context` in tokens, prompt and answer together.

    `memory` is that of one GPU, or None where nobody asked. `weights` is the size of all weights.
    """

    shape: ModelShape
    context: int
    requests: int
    weights: int
    weights_dtype: str
    kv_dtype: str
    memory: int | None = None
    gpus: int = 1
    reserve: int = 0
    """Bytes of each GPU that are kept for other things."""

    @property
    def cache(self) -> int:
        """The KV cache of all requests at their longest."""
        return kv_cache_bytes(self.shape, tokens=self.context, requests=self.requests, dtype=self.kv_dtype)

    @property
    def needed(self) -> int:
        """Weights and cache."""
        return self.weights + self.cache

    @property
    def room(self) -> int | None:
        """What all GPUs together have for weights and cache; below 0 where the reserve is larger than the memory."""
        return None if self.memory is None else self.gpus * (self.memory - self.reserve)

    @property
    def fits(self) -> bool:
        """Is there room? True where nobody asked."""
        return self.room is None or self.needed <= self.room

    @property
    def most_requests(self) -> int | None:
        """How many requests of this context fit beside the weights; None where any number does."""
        return self._most(lambda n: replace(self, requests=n), MANY)

    @property
    def longest_context(self) -> int | None:
        """The longest context at which so many requests fit; None where any does, as with windows in every layer."""
        return self._most(lambda n: replace(self, context=n), MANY)

    def _most(self, changed: Callable[[int], Budget], limit: int) -> int | None:
        """The largest number below the limit with which it fits, 0 where none does; by halving, as more never fits."""
        if changed(limit).fits:
            return None
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if changed(middle).fits else (low, middle)
        return low

    def with_types(self, weights_dtype: str, kv_dtype: str) -> Budget:
        """The same with other types of numbers."""
        weights = self.weights
        if weights_dtype != self.weights_dtype:
            weights = -(-weights * dtype_bits(weights_dtype) // dtype_bits(self.weights_dtype))
        return replace(self, weights=weights, weights_dtype=weights_dtype, kv_dtype=kv_dtype)


MANY = 1 << 40
"""More requests, and more tokens, than anybody serves."""


@dataclass(frozen=True)
class Change:
    """Something that would make it fit: what is changed, in words, and how it then stands."""

    parts: tuple[str, ...]
    budget: Budget

    @property
    def what(self) -> str:
        """The parts as a sentence has them."""
        *first, last = self.parts
        return f"{', '.join(first)} and {last}" if first else last


def budget(
    model_or_config: str | PathLike[str] | Mapping[str, Any] | ModelShape,
    *,
    context: int,
    requests: int = 1,
    weights: int | None = None,
    weights_dtype: str = "bfloat16",
    kv_dtype: str = "bfloat16",
    memory: int | None = None,
    gpus: int = 1,
    reserve: int = 0,
) -> Budget:
    """What it takes to serve a model; `model_or_config` as in `kv_cache_bytes`, the numbers as in `Budget`.

    `weights`: bytes of all weights, where they are known otherwise (a file's size); else they are counted, in
    `weights_dtype`.

    Raises ValueError for sizes below their least, an unknown model or dtype, and a model whose weights cannot be
    counted where `weights` is not given.
    """
    check_sizes(context=context, requests=requests, gpus=gpus, reserve=reserve)
    if gpus < 1:
        raise ValueError(f"gpus: expected at least 1, got {gpus}")
    for dtype in (weights_dtype, kv_dtype):
        bytes_of(0, dtype)
    shape = find_shape(model_or_config)
    if weights is None:
        try:
            weights = weight_bytes(shape, dtype=weights_dtype)
        except ValueError as error:
            raise ValueError(f"weights: {error}; {WEIGHTS_NEEDED}") from error
    check_sizes(weights=weights)
    if memory is not None:
        check_sizes(memory=memory)
    return Budget(shape, context, requests, weights, weights_dtype, kv_dtype, memory, gpus, reserve)


def changes(over: Budget) -> list[Change]:
    """What would make it fit, the fewest changes first; none of which a part would be enough. Empty where it fits.

    A smaller type for the cache or the weights, or both; with each of these, or without, fewer requests or a shorter
    context; more GPUs.
    """
    if over.fits:
        return []
    found = []
    for weights_dtype in _smaller(over.weights_dtype, SMALLER_WEIGHTS):
        for kv_dtype in _smaller(over.kv_dtype, SMALLER_CACHE):
            other = over.with_types(weights_dtype, kv_dtype)
            said = _types_said(over, weights_dtype, kv_dtype)
            if other.fits:
                found.append(Change(said, other))
                continue
            if n := other.most_requests:
                found.append(Change((*said, f"{n} request{'s' if n > 1 else ''}"), replace(other, requests=n)))
            if n := other.longest_context:
                found.append(Change((*said, f"a context of {n}"), replace(other, context=n)))
    if (gpus := _gpus_needed(over)) is not None:
        found.append(Change((f"{gpus} GPUs",), replace(over, gpus=gpus)))
    enough = [set(change.parts) for change in found]
    least = [change for change in found if not any(parts < set(change.parts) for parts in enough)]
    return sorted(least, key=lambda change: len(change.parts))


def _smaller(dtype: str, offered: tuple[str, ...]) -> list[str]:
    return [dtype, *(other for other in offered if dtype_bits(other) < dtype_bits(dtype))]


def _types_said(over: Budget, weights_dtype: str, kv_dtype: str) -> tuple[str, ...]:
    weights = () if weights_dtype == over.weights_dtype else (f"weights in {weights_dtype}",)
    return weights if kv_dtype == over.kv_dtype else (f"a cache in {kv_dtype}", *weights)


def _gpus_needed(over: Budget) -> int | None:
    """How many such GPUs hold all of it; None where one has no room beside its reserve."""
    each = (over.memory or 0) - over.reserve
    return None if each <= 0 else -(-over.needed // each)
