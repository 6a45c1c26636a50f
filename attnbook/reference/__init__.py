"""The readable truth: attention, softmax and masks, written once for NumPy arrays and torch tensors.

`three_lines.attention` is the idea; `attention` is the same with masks, causality and grouped heads. Other
implementations are compared with these and never import them. Positions, norms and the layers are loaded when they are
first used: a chapter about softmax neither waits for them nor is executed again when they change. `moe` and its module
share a name, so it is had from there: `from attnbook.reference.moe import moe`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from attnbook.reference.attention import attention, kv_head_of
from attnbook.reference.masks import causal_mask, padding_mask, window_mask
from attnbook.reference.online import merge, online_average, online_softmax
from attnbook.reference.rope import permute_rope_rows, rope, rope_cos_sin
from attnbook.reference.rope_scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    YarnScaling,
    scaling_from_config,
)
from attnbook.reference.softmax import logsumexp, naive_softmax, softmax
from attnbook.reference.varlen import attention_varlen

if TYPE_CHECKING:
    from attnbook.reference.balance import update_selection_bias
    from attnbook.reference.block import MLP, TransformerBlock
    from attnbook.reference.heads import MultiHeadAttention, merge_heads, split_heads
    from attnbook.reference.kv_cache import KVCache, PagedKVCache, RingKVCache, attend
    from attnbook.reference.norms import (
        BatchNorm,
        LayerNorm,
        RMSNorm,
        batch_norm,
        batch_statistics,
        layer_norm,
        rms_norm,
    )
    from attnbook.reference.positions import (
        LearnedPositions,
        alibi_bias,
        alibi_slopes,
        positions_from_mask,
        sinusoidal_positions,
    )

__all__ = [
    "MLP",
    "BatchNorm",
    "DynamicNTKScaling",
    "KVCache",
    "LayerNorm",
    "LearnedPositions",
    "LinearScaling",
    "Llama3Scaling",
    "MultiHeadAttention",
    "NTKScaling",
    "PagedKVCache",
    "RMSNorm",
    "RingKVCache",
    "TransformerBlock",
    "YarnScaling",
    "alibi_bias",
    "alibi_slopes",
    "attend",
    "attention",
    "attention_varlen",
    "batch_norm",
    "batch_statistics",
    "causal_mask",
    "kv_head_of",
    "layer_norm",
    "logsumexp",
    "merge",
    "merge_heads",
    "naive_softmax",
    "online_average",
    "online_softmax",
    "padding_mask",
    "permute_rope_rows",
    "positions_from_mask",
    "rms_norm",
    "rope",
    "rope_cos_sin",
    "scaling_from_config",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "update_selection_bias",
    "window_mask",
]

_HOME = {
    "MLP": "block",
    "TransformerBlock": "block",
    "MultiHeadAttention": "heads",
    "merge_heads": "heads",
    "split_heads": "heads",
    "BatchNorm": "norms",
    "LayerNorm": "norms",
    "RMSNorm": "norms",
    "batch_norm": "norms",
    "batch_statistics": "norms",
    "layer_norm": "norms",
    "rms_norm": "norms",
    "LearnedPositions": "positions",
    "alibi_bias": "positions",
    "alibi_slopes": "positions",
    "positions_from_mask": "positions",
    "sinusoidal_positions": "positions",
    "KVCache": "kv_cache",
    "PagedKVCache": "kv_cache",
    "RingKVCache": "kv_cache",
    "attend": "kv_cache",
    "update_selection_bias": "balance",
}
"""Where each name that is loaded on first use lives, a module of this room."""


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found  # next time without this function
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
