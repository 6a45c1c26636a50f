"""What comes out of a mask that is wrong in one of the usual ways, most of which raise no error?

Numbers that stand in for −inf, two of them added, a polarity that another API reads the other way round, and a
triangle that is off by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.experiments._attend import attend, identity, measure_worst, weights
from attnbook.measure import experiment, measure, measure_mean
from attnbook.probes import causal_leak
from attnbook.reference import causal_mask, padding_mask


@experiment
def run(seed: int = 0, tokens: int = 7, head_dim: int = 16, repeats: int = 100) -> dict[str, Any]:
    """The same random scores under each mistake."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, repeats, 1, tokens, head_dim, generator=generator)
    keep = causal_mask(tokens, tokens, like=q)
    scores = q @ k.mT / head_dim**0.5

    _minus_a_billion_in_half(scores[0, 0].half(), keep)
    _minus_a_billion_in_single(scores, keep)
    _two_minima(q, k, keep)
    _polarity(q, k, keep)
    _off_by_one(q, k, keep)
    return {}


def _minus_a_billion_in_half(scores: Tensor, keep: Tensor) -> None:
    """−1e9 lies outside float16. What happens depends on how it is written."""
    try:
        scores.masked_fill(~keep, -1e9)
    except RuntimeError:
        refused = True
    else:
        refused = False
    measure("mask.half_fill_refused", refused)
    # A Python number is rounded once, after the product: −inf for the hidden, 0 for the visible.
    from_number = scores + (1 - keep.half()) * -1e9
    measure("mask.half_number_is_inf", torch.equal(from_number, scores.masked_fill(~keep, -torch.inf)))
    # A tensor is rounded first, to −inf, and 0 · −inf is NaN: the visible ones are lost, the hidden ones are fine.
    from_tensor = scores + (1 - keep.half()) * torch.tensor(-1e9).half()
    measure("mask.half_tensor_nans", from_tensor.isnan().sum())
    measure("mask.half_tensor_nans_are_the_visible", torch.equal(from_tensor.isnan(), keep))


def _minus_a_billion_in_single(scores: Tensor, keep: Tensor) -> None:
    """In float32 −1e9 works as long as one key is visible, and nobody notices the row where none is."""
    finite = torch.softmax(scores.masked_fill(~keep, -1e9), dim=-1)
    infinite = torch.softmax(scores.masked_fill(~keep, -torch.inf), dim=-1)
    measure("mask.billion_works_with_a_key", torch.equal(finite, infinite))
    every_key_hidden = (scores - 1e9, torch.full_like(scores, -1e9))  # added, and written over them
    uniform = torch.tensor(1 / scores.shape[-1])
    alike = [torch.allclose(torch.softmax(nothing, dim=-1), uniform) for nothing in every_key_hidden]
    measure("mask.billion_dead_row_is_uniform", all(alike))
    measure("mask.billion_spacing", np.spacing(np.float32(1e9)))


def _two_minima(q: Tensor, k: Tensor, keep: Tensor) -> None:
    """Causal and padding, each written as the most negative number of the dtype, and added."""
    overflows = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        minimum = torch.tensor(torch.finfo(dtype).min, dtype=dtype)
        overflows.append(bool(minimum + minimum == -torch.inf))
    measure("mask.two_minima_are_inf", all(overflows))

    tokens, lowest = q.shape[-2], torch.finfo(q.dtype).min
    real = padding_mask(torch.tensor([tokens - 3]), tokens, side="left")  # three places of filling come first
    causal, padding = (torch.where(mask, 0.0, lowest) for mask in (keep, real))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    added = torch.softmax(scores + causal + padding, dim=-1)
    future = (added * ~keep).sum(-1)[..., 0]  # how much of it the first query, which is filling, takes from the future
    measure_mean("mask.added_future_weight", future.flatten().tolist(), unit="ratio")
    measure("mask.joined_future_weight", weights(q, k, mask=real, is_causal=True)[..., ~keep].max())

    no_key = torch.full((tokens,), lowest)
    measure("mask.twice_is_nan", torch.softmax(scores + no_key + no_key, dim=-1).isnan().all())


def _polarity(q: Tensor, k: Tensor, keep: Tensor) -> None:
    """True = keep for our attention and for scaled_dot_product_attention, True = drop for MultiheadAttention."""
    v = identity(k)
    ours = weights(q, k, mask=keep)
    error = (F.scaled_dot_product_attention(q, k, v, attn_mask=keep) - ours).abs().amax(dim=(1, 2, 3))
    measure_worst("mask.sdpa_error", error)
    flipped = F.scaled_dot_product_attention(q, k, v, attn_mask=~keep)
    measure("mask.sdpa_flipped_past", (flipped * keep)[..., :-1, :].sum())
    measure("mask.probe_finds_flipped", _leaks(~keep, q[:3, 0]))

    layer = _plain_multihead(q.shape[-1])
    x = q[:, 0]  # (b, t, d)
    dropped = layer(x, x, x, attn_mask=~keep)[1]
    error = (dropped - weights(q, q, mask=keep)[:, 0]).abs().amax(dim=(1, 2))
    measure_worst("mask.multihead_error", error)
    kept = layer(x, x, x, attn_mask=keep)[1]
    measure("mask.multihead_flipped_past", (kept * keep)[..., :-1, :].sum())
    out, _ = layer(x, x, x, attn_mask=keep)
    quick, _ = layer(x, x, x, attn_mask=keep, need_weights=False)
    measure("mask.multihead_last_row_nan", out[:, -1].isnan().all())
    measure("mask.multihead_last_row_quick", quick[:, -1].abs().max())


@torch.no_grad()
def _plain_multihead(width: int) -> torch.nn.MultiheadAttention:
    """The layer of torch with one head and identity projections: it attends to its input as it is."""
    layer = torch.nn.MultiheadAttention(width, 1, bias=False, batch_first=True)
    one = torch.eye(width)
    layer.in_proj_weight.copy_(torch.cat([one, one, one]))
    layer.out_proj.weight.copy_(one)
    return layer.requires_grad_(False)


def _off_by_one(q: Tensor, k: Tensor, keep: Tensor) -> None:
    """Keys j < i and j ≤ i + 1, beside j ≤ i: which of them does the probe report?"""
    strict, leaky = (torch.ones_like(keep).tril(shift) for shift in (-1, 1))
    measure("mask.strict_pairs", strict.sum())
    measure("mask.leaky_pairs", leaky.sum())
    measure("mask.strict_first_row", weights(q, k, mask=strict)[..., 0, :].abs().max())
    found = [_leaks(mask, q[:3, 0]) for mask in (strict, keep, leaky)]
    measure("mask.probe_reports_leaky_only", found == [False, False, True])


def _leaks(mask: Tensor, x: Tensor) -> bool:
    """Does the probe report a leak when x (b, t, d) attends to itself under this mask?"""

    def see(x: Tensor) -> Tensor:
        return attend(x[:, None], x[:, None], x[:, None], mask=mask)[:, 0]

    return not causal_leak(see, x).ok
