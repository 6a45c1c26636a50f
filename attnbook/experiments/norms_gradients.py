"""Before training: is the first layer's gradient longer than the last's, with the norm before, with it after?

Xiong et al. 2020 find that with the norm after the sum gradients are large near the output. Here they are measured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.experiments._stacked import block_gradients, copies, fresh
from attnbook.experiments.norms_order import ORDERS
from attnbook.measure import experiment, measure_mean


@experiment
def run(seed: int = 0, models: int = 8, layers: int = 12, width: int = 24) -> dict[str, Tensor]:
    """Data: by order, the length of each layer's gradient (models, layers)."""
    found: dict[str, Tensor] = {}
    for order in ORDERS:
        model = fresh(seed, models, layers, width=width, norm=order)
        found[order] = block_gradients(model, copies(torch.Generator().manual_seed(seed), models))
        ratio = found[order][:, 0] / found[order][:, -1]
        measure_mean(f"norm.bottom_over_top_{order}", ratio.tolist(), unit="ratio")
    return found
