"""The one door: `attention` and its kin check their input once, choose an implementation, and hand over.

No implementation is here except torch's own, made to follow our conventions (`attnbook.api.sdpa`). Layers and caches
are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from attnbook.api.attention import attention
from attnbook.api.explain import Explanation, explain
from attnbook.api.moe import moe
from attnbook.api.varlen import attention_varlen

if TYPE_CHECKING:
    from attnbook.api.cache import KVCache, PagedKVCache, RingKVCache, attend
    from attnbook.api.modules import MultiHeadAttention, TransformerBlock

__all__ = [
    "Explanation",
    "KVCache",
    "MultiHeadAttention",
    "PagedKVCache",
    "RingKVCache",
    "TransformerBlock",
    "attend",
    "attention",
    "attention_varlen",
    "explain",
    "moe",
]

_HOME = {
    "KVCache": "cache",
    "PagedKVCache": "cache",
    "RingKVCache": "cache",
    "attend": "cache",
    "MultiHeadAttention": "modules",
    "TransformerBlock": "modules",
}
"""Where each name that is loaded on first use lives."""


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
