"""The readable truth: attention, softmax and masks, written once for NumPy arrays and torch tensors.

`three_lines.attention` is the idea; `attention` is the same with masks, causality and grouped heads. Other
implementations are compared with these and never import them.
"""

from attnbook.reference.attention import attention, kv_head_of
from attnbook.reference.balance import update_selection_bias
from attnbook.reference.masks import causal_mask, padding_mask, window_mask
from attnbook.reference.moe import moe
from attnbook.reference.online import merge, online_average, online_softmax
from attnbook.reference.softmax import logsumexp, naive_softmax, softmax
from attnbook.reference.varlen import attention_varlen

__all__ = [
    "attention",
    "attention_varlen",
    "causal_mask",
    "kv_head_of",
    "logsumexp",
    "merge",
    "moe",
    "naive_softmax",
    "online_average",
    "online_softmax",
    "padding_mask",
    "softmax",
    "update_selection_bias",
    "window_mask",
]
