"""Where does something that is not finite reach: whom does a NaN in a key, a value or a query spoil?

Two queries and three keys, causal, so that only the second query sees the last key. Asked of every implementation, as
in `conventions`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.api import attention
from attnbook.experiments.conventions import Attend, measure_all
from attnbook.measure import experiment


@experiment
def run() -> dict[str, Any]:
    """NaN and inf in keys, values and queries, forward and backward, and a cache padded with NaN."""
    measure_all(_forward, _backward, door=attention)
    return {}


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    numbers = torch.arange(24.0, dtype=torch.float64).sin()
    return numbers[:6].reshape(1, 1, 2, 3), numbers[6:15].reshape(1, 1, 3, 3), numbers[15:].reshape(1, 1, 3, 3)


def _forward(attend: Attend) -> dict[str, bool]:
    q, k, v = _inputs()
    whole = attend(q, k, v, is_causal=True)[0, 0]
    found = {}
    for name, (place, row) in {"query": (0, 1), "key": (1, 2), "value": (2, 2)}.items():
        kept = []
        for bad in (torch.nan, torch.inf, -torch.inf):
            spoilt = [x.clone() for x in (q, k, v)]
            spoilt[place][0, 0, row] = bad
            out = attend(*spoilt, is_causal=True)[0, 0]
            reached = not out[1].isfinite().all() if math.isnan(bad) else True  # a −inf in a key may hide it
            kept.append(torch.allclose(out[0], whole[0], rtol=1e-12) and reached)
        found[f"nan_in_{name}"] = all(kept)
    return found


def _backward(attend: Attend) -> dict[str, bool]:
    kept = []
    for spoilt in ((1,), (2,), (1, 2)):  # the key, its value, both
        inputs = _inputs()
        for place in spoilt:
            inputs[place][0, 0, 2] = torch.nan
        results = _through(attend, *inputs, mask=torch.arange(3) < 2)
        finite = all(bool(x.isfinite().all()) for x in results)
        kept.append(finite and not any(bool(gradient[0, 0, 2].any()) for gradient in results[3:]))
    q, k, v = _inputs()
    q[0, 0, 0] = torch.nan  # this query may not see the last key
    gradients = _through(attend, q, k, v, is_causal=True)[2:]
    reached = [gradient[0, 0].isnan().all(-1).tolist() for gradient in gradients]
    clean = all(bool(gradient[0, 0, -1].isfinite().all()) for gradient in gradients)
    return {
        "nan_in_padding": all(kept),
        "nan_in_query_gradient": clean and reached == [[True, False], [True, True, False], [True, True, False]],
    }


def _through(attend: Attend, *inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """Out, lse, and the gradients of their sum in q, k and v."""
    leaves = [x.requires_grad_() for x in inputs]
    out, lse = attend(*leaves, return_lse=True, **options)
    return (out, lse, *torch.autograd.grad(out.sum() + lse.sum(), leaves))
