"""Fewer queries than keys: does the triangle start at the top left or end at the bottom right?

With a cache of past keys a new query stands at the end of the sequence. A triangle that starts at the top left treats
it as the first token, and shows it one key.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from attnbook.experiments._attend import attend, identity, measure_worst, weights
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import causal_mask


@experiment
def run(seed: int = 0, tokens: int = 13, new: int = 3, head_dim: int = 16, repeats: int = 100) -> dict[str, Any]:
    """The last `new` queries of a sequence alone, against the same rows of the whole sequence."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, repeats, 1, tokens, head_dim, generator=generator)
    whole = attend(q, k, v, is_causal=True)
    last = q[..., -new:, :]
    ours = attend(last, k, v, is_causal=True)
    top_left = F.scaled_dot_product_attention(last, k, v, is_causal=True)
    lower_right = F.scaled_dot_product_attention(last, k, v, attn_mask=causal_lower_right(new, tokens))

    def errors(out: Tensor) -> Tensor:
        return (out - whole[..., -new:, :]).abs().mean(dim=(1, 2, 3))

    measure_worst("mask.decode_error", errors(ours))
    measure_mean("mask.top_left_error", errors(top_left).tolist())
    measure_worst("mask.lower_right_error", errors(lower_right))
    square = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    measure_worst("mask.square_error", (square - whole).abs().amax(dim=(1, 2, 3)))

    one = q[..., -1:, :]
    measure("mask.one_query_sees", int((weights(one, k[..., :5, :], is_causal=True) > 0).sum(-1).max()))
    eye = identity(k[..., :5, :])
    theirs = F.scaled_dot_product_attention(one, k[..., :5, :], eye, is_causal=True)
    measure("mask.one_query_sees_top_left", int((theirs > 0).sum(-1).max()))

    short = attend(q[..., :5, :], k[..., :2, :], v[..., :2, :], is_causal=True)
    measure("mask.short_memory_empty_rows", (short == 0).all(-1).sum(-1).max())
    measure("mask.two_of_five_pairs", causal_mask(2, 5).sum())
    measure("mask.two_of_five_pairs_top_left", torch.ones(2, 5).tril().sum().long())
    return {}
