"""What does splitting one head into several cost, and what does it not cost?

A layer of one head of 64 components and a layer of eight heads of 8 are built and run, and counted: the numbers in
their weights, and the operations that torch carries out (by its own counter), with `attnbook.costs` beside it. What
differs is counted too: a table of weights for every head, and how much one table can express (its rank).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attnbook.costs import attention_flops, bytes_of
from attnbook.measure import experiment, measure
from attnbook.reference import MultiHeadAttention, merge_heads

LONG = 4096
"""The number of tokens for which the bytes of all tables are given."""


@experiment
def run(d_model: int = 64, n_heads: int = 8, t: int = 128, seed: int = 0) -> None:
    """One head, and `n_heads` heads, on the same `t` random tokens."""
    torch.manual_seed(seed)
    x = torch.randn(1, t, d_model, dtype=torch.float64)
    layers = {name: MultiHeadAttention(d_model, h, dtype=x.dtype) for name, h in (("one", 1), ("eight", n_heads))}
    counts = {name: count(layer, x) for name, layer in layers.items()}
    for name, layer in layers.items():
        measure(f"heads.parameters_{name}", sum(p.numel() for p in layer.parameters()))
        measure(f"heads.weights_{name}", layer(x, return_weights=True)[1].numel())
        q, k, _ = layer.project(x)
        measure(f"heads.rank_{name}", int(torch.linalg.matrix_rank(q @ k.mT).max()))
    for i, part in enumerate(("projections", "attention")):
        measure(f"heads.flops_{part}", counts["one"][i])
        measure(f"heads.flops_{part}_same", counts["one"][i] == counts["eight"][i])
    told = [attention_flops(t, n_heads=h, head_dim=d_model // h, d_model=d_model) for h in (1, n_heads)]
    formula = [(count.projections, count.scores + count.values) for count in told]
    measure("heads.flops_as_counted", formula == [counts["one"], counts["eight"]])
    measure("heads.table_bytes_one", bytes_of(LONG**2, "float32"), unit="B")
    measure("heads.table_bytes_eight", bytes_of(n_heads * LONG**2, "float32"), unit="B")


@torch.no_grad()
def count(layer: MultiHeadAttention, x: Tensor) -> tuple[int, int]:
    """The operations of the layer's four linear maps, and of its attention, as torch carries them out."""
    with FlopCounterMode(display=False) as maps:
        q, k, v = layer.project(x)
    with FlopCounterMode(display=False) as inside:
        out = layer.attend(q, k, v)
    with FlopCounterMode(display=False) as last:
        layer.o_proj(merge_heads(out))
    return maps.get_total_flops() + last.get_total_flops(), inside.get_total_flops()
