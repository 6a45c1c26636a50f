"""One head that subtracts after all: its softmax does it, because the ratio of two weights is e^(difference of scores).

The key says the number, the value says nothing but which of the two places it stands in: +1 at a, −1 at b. With the
scores a and b the weights are e^a and e^b over their sum, and the output is their difference, tanh((a − b) / 2).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure


@experiment
def run(symbols: int = 6) -> dict[str, Any]:
    """All pairs of numbers below `symbols`. Data: `out` (symbols, symbols), the output for a, b."""
    a, b = torch.meshgrid(*[torch.arange(float(symbols), dtype=torch.float64)] * 2, indexing="ij")
    k = torch.stack([a, b], -1).view(-1, 1, 2, 1)  # every pair a sequence of two keys of one component
    v = torch.tensor([1.0, -1.0], dtype=k.dtype).view(1, 1, 2, 1).expand_as(k)
    out = attend(torch.ones_like(k[:, :, :1]), k, v).view(symbols, symbols)
    measure("heads.ratio_error", (out - torch.tanh((a - b) / 2)).abs().max())
    values = [out[a - b == difference] for difference in range(1 - symbols, symbols)]
    measure("heads.ratio_rises", all(bool(x.max() < y.min()) for x, y in pairwise(values)))
    return {"out": out}
