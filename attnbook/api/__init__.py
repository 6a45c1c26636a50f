"""The one door: `attention` and its kin check their input once, choose an implementation, and hand over.

No implementation is here except torch's own, made to follow our conventions (`attnbook.api.sdpa`). The layers, which
few callers need, are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from attnbook.api.attention import attention
from attnbook.api.explain import Explanation, explain
from attnbook.api.moe import moe
from attnbook.api.varlen import attention_varlen

if TYPE_CHECKING:
    from attnbook.api.modules import MultiHeadAttention, TransformerBlock

__all__ = [
    "Explanation",
    "MultiHeadAttention",
    "TransformerBlock",
    "attention",
    "attention_varlen",
    "explain",
    "moe",
]

_HOME = {"MultiHeadAttention": "modules", "TransformerBlock": "modules"}
"""Where each name that is loaded on first use lives."""


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
