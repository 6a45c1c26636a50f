"""torch's own attention for packed sequences: one call for each batch of sequences of equal length.

It has no packed layout, but each sequence, and each row of neighbours of equal length, is a view that it takes. In the
forward pass that is faster than the tiles, which are plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.api.flash import finite
from attnbook.tiled.packed import Batch, batches


def lacks(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Sequence[int], cu_k: Sequence[int], is_causal: bool, options: dict[str, Any]
) -> str | None:
    """What a call asks for that torch's attention does not do to packed sequences; None where it does all."""
    for name, given in options.items():
        if given is not None and given is not False:
            return f"sdpa takes packed sequences without {name} only"
    if any(len(x.shape) and 0 in x.shape for x in (q, k, v)) or cu_q[-1] == 0 or cu_k[-1] == 0:
        return "sdpa is not asked where nothing is seen"
    if is_causal and list(cu_q) != list(cu_k):
        return "sdpa aligns causal masks at the top left, and here a sequence may have more keys than queries, or fewer"
    if not all(finite(x) for x in (q, k, v)):
        return "sdpa lets a NaN or inf reach rows that may not see it, or loses it, and there is one"
    return None


def unfit(q: Tensor, k: Tensor, v: Tensor, cu_q: Sequence[int], cu_k: Sequence[int]) -> str | None:
    """Why it is not the one to take; None where it is."""
    if v.shape[-1] != q.shape[-1]:
        return "sdpa keeps all scores where d_v differs from head_dim"
    if list(cu_q) != list(cu_k):
        return "the tiles group queries where there are fewer of them than keys"
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        return "the tiles' backward pass takes all sequences from where they lie"
    return None


def run(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Sequence[int], cu_k: Sequence[int], is_causal: bool, scale: float | None
) -> Tensor:
    """Packed attention of a call that lacks nothing: q (t_q, n_heads, d) -> out (t_q, n_heads, d_v)."""
    gqa = q.shape[1] != k.shape[1]
    parts, rows = [], []
    for batch in batches(cu_q, cu_k):
        if batch.t_q and batch.t_kv:  # a sequence without keys keeps its zeros
            views = (batch.queries(q), batch.keys(k), batch.keys(v))
            causal = is_causal and batch.t_q > 1
            out = scaled_dot_product_attention(*views, is_causal=causal, scale=scale, enable_gqa=gqa)  # (b, h, t, d_v)
            parts.append(out.transpose(1, 2).flatten(0, 1))
            rows.append(_rows(batch, q.device))
    whole = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    return whole.index_copy(0, torch.cat(rows), torch.cat(parts))


def _rows(batch: Batch, device: torch.device) -> Tensor:
    """Where the queries of a batch lie, sequence after sequence."""
    starts = torch.tensor(batch.starts_q, device=device)
    return (starts[:, None] + torch.arange(batch.t_q, device=device)).flatten()
