"""A query that may look nowhere: what comes out, and what flows back?

Two queries, three keys; the second query sees none, and the loss does not even use its row. What flows back depends on
how −inf got into the scores: `masked_fill` writes it over them, and its backward pass writes 0 over whatever comes; an
added mask lets everything through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure
from attnbook.reference import attention

KEEP = torch.tensor([[True, True, False], [False, False, False]])


@experiment
def run(seed: int = 0, head_dim: int = 4) -> dict[str, Any]:
    """Ours, torch's softmax as it is, cleaned after and cleaned before, the lowest number, torch's own attention."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, 1, 2, head_dim, generator=generator)
    k, v = torch.randn(2, 1, 1, 3, head_dim, generator=generator)

    out, gradients = _through(_ours, q, k, v)
    lse = attention(q, k, v, mask=KEEP, return_lse=True)[1][0, 0]
    measure("mask.dead_output", out[1].abs().max())
    measure("mask.dead_lse", lse[1])
    measure("mask.dead_query_gradient", gradients[0][1].abs().max())
    measure("mask.dead_nans", sum(int(x.isnan().sum()) for x in (out, *gradients)))

    out, _ = _through(_plain, q, k, v)
    measure("mask.plain_nans", out.isnan().sum())
    _, gradients = _through(_filled_and_cleaned_after, q, k, v)
    measure("mask.filled_nans", sum(int(x.isnan().sum()) for x in gradients))
    out, gradients = _through(_cleaned_after, q, k, v)
    measure("mask.cleaned_after_looks_right", torch.allclose(out, _through(_ours, q, k, v)[0]))
    measure("mask.cleaned_after_dq_nans", gradients[0].isnan().sum())
    measure("mask.cleaned_after_dk_nans", gradients[1].isnan().sum())
    _, gradients = _through(_cleaned_before, q, k, v)
    measure("mask.cleaned_before_nans", sum(int(x.isnan().sum()) for x in gradients))

    out, _ = _through(_lowest, q, k, v)
    measure("mask.lowest_is_mean", torch.allclose(out[1], v[0, 0].mean(0)))
    measure("mask.lowest_hidden_by_ours", _hides_lowest(q, k, v))
    out, gradients = _through(_sdpa, q, k, v)
    measure("mask.sdpa_dead_is_zero", bool((out[1] == 0).all()) and not any(x.isnan().any() for x in gradients))
    return {}


def _through(kind: Callable[[Tensor, Tensor, Tensor], Tensor], *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The output (2, d), and the gradients of q, k, v for a loss on its first row alone."""
    q, k, v = (x.clone().requires_grad_() for x in inputs)
    out = kind(q, k, v)[0, 0]
    gradients = torch.autograd.grad(out[0].square().sum(), (q, k, v))
    return out.detach(), [gradient[0, 0] for gradient in gradients]


def _ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend(q, k, v, mask=KEEP)


def _added(q: Tensor, k: Tensor, hidden: float) -> Tensor:
    """Scores with a number added where a key is hidden."""
    return q @ k.mT / math.sqrt(q.shape[-1]) + torch.where(KEEP, 0.0, hidden)


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(_added(q, k, -torch.inf), dim=-1) @ v


def _cleaned_after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nan_to_num(torch.softmax(_added(q, k, -torch.inf), dim=-1)) @ v


def _filled_and_cleaned_after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~KEEP, -torch.inf)
    return torch.nan_to_num(torch.softmax(scores, dim=-1)) @ v


def _cleaned_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    empty = ~KEEP.any(dim=-1, keepdim=True)
    scores = torch.where(empty, 0.0, _added(q, k, -torch.inf))  # any finite number will do
    return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0) @ v


def _lowest(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(_added(q, k, torch.finfo(q.dtype).min), dim=-1) @ v


def _sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out: Tensor = F.scaled_dot_product_attention(q, k, v, attn_mask=KEEP)
    return out


def _hides_lowest(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Does our attention take an added lowest number for what is meant by it?"""
    added = torch.where(KEEP, 0.0, torch.finfo(q.dtype).min)
    return torch.equal(attend(q, k, v, mask=added), _ours(q, k, v))
