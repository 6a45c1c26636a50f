"""How much gradient reaches queries and keys through attention, with and without the division by √d?

Every output row gets a random gradient of length 1 from above, so that what differs below is attention's doing alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention

FORGOTTEN = 0.01
"""A query is called forgotten when less than this share of the mean gradient reaches it."""


@experiment
def run(
    dims: tuple[int, ...] = (16, 64, 256, 1024), n: int = 16, queries: int = 32, sequences: int = 96, seed: int = 3
) -> Any:
    """Unit-normal queries, keys and values; n keys a sequence.

    Data: `q` and `k` map (d, divided) to the norms of the gradients, one for every query (sequences, queries) and for
    every key (sequences, n).
    """
    generator = torch.Generator().manual_seed(seed)
    to_q, to_k = {}, {}
    for d in dims:
        q, k, v = (torch.randn(sequences, 1, t, d, generator=generator) for t in (queries, n, n))
        above = torch.nn.functional.normalize(torch.randn(q.shape, generator=generator), dim=-1)
        for divided in (False, True):
            to_q[d, divided], to_k[d, divided] = gradients(q, k, v, above, divided)
            name = f"{'divided' if divided else 'plain'}_d{d}"
            _measure_spread(name, to_q[d, divided])
            measure_mean(f"scaling.grad_k_mean_{name}", to_k[d, divided].mean(-1), quote=False)
    tops = [_top_tenth(to_q[d, True]) for d in dims]
    measure("scaling.top_tenth_moves_divided", 100 * (max(tops) - min(tops)), unit="point")
    forgotten = [bool((to_q[d, True] < FORGOTTEN * to_q[d, True].mean()).any()) for d in dims]
    measure("scaling.no_divided_query_forgotten", not any(forgotten))
    measure("scaling.grad_mean_larger_plain", all(bool(to_q[d, False].mean() > to_q[d, True].mean()) for d in dims))
    measure("scaling.grad_k_mean_larger_plain", all(bool(to_k[d, False].mean() > to_k[d, True].mean()) for d in dims))
    return {"q": to_q, "k": to_k}


def gradients(q: Tensor, k: Tensor, v: Tensor, above: Tensor, divided: bool) -> tuple[Tensor, Tensor]:
    """Norms of ∂(above · out)/∂q, (b, t_q), and ∂(above · out)/∂k, (b, t_kv); the arguments are (b, 1, t, d)."""
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    attention(q, k, v, scale=None if divided else 1.0).backward(above)
    assert q.grad is not None
    assert k.grad is not None
    return q.grad.norm(dim=-1)[:, 0], k.grad.norm(dim=-1)[:, 0]


def _measure_spread(name: str, norms: Tensor) -> None:
    """How unequally the queries are served; norms (sequences, queries). Every sequence is one repeat."""
    measure_mean(f"scaling.grad_mean_{name}", norms.mean(-1), quote=False)
    measure_mean(f"scaling.grad_median_{name}", norms.median(-1).values, quote=False)
    forgotten = (norms < FORGOTTEN * norms.mean()).float()
    measure_mean(f"scaling.grad_forgotten_{name}", forgotten.mean(-1), unit="ratio", quote=False)
    share, best = _top_tenth(norms), norms * (norms > norms.flatten().quantile(0.9))
    off = (best - share * norms).sum(-1)  # the spread of a ratio of two means, by linearisation
    spread = float(off.std() / norms.sum(-1).mean()) / len(norms) ** 0.5
    measure(f"scaling.grad_top_tenth_{name}", share, unit="ratio", spread=spread, quote=False)


def _top_tenth(norms: Tensor) -> float:
    """The share of all the gradient that goes to the best served tenth of the queries."""
    return float(norms[norms > norms.flatten().quantile(0.9)].sum() / norms.sum())
