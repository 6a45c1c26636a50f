"""Fewer heads for keys and values than for queries: which query head reads which?

One rule, h // (n_heads // n_kv_heads): consecutive query heads share. The other order, where heads take turns, has the
same shapes and is wrong for weights that were trained with this one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import MultiHeadAttention


@experiment
def run(n_heads: int = 8, n_kv_heads: int = 2, t: int = 16, d: int = 8, repeats: int = 20, seed: int = 0) -> Any:
    """Random q, k, v in float64. Data: `reads` (n_heads,), the key head of each query head, and `tiled` of the trap."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(repeats, n_heads, t, d, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, repeats, n_kv_heads, t, d, generator=generator, dtype=torch.float64)
    out, size = attend(q, k, v), n_heads // n_kv_heads
    repeated = attend(q, *(x.repeat_interleave(size, dim=1) for x in (k, v)))
    tiled = attend(q, *(x.repeat(1, size, 1, 1) for x in (k, v)))
    measure("heads.repeated_error", (out - repeated).abs().max())
    measure("heads.groups_torch_error", (out - scaled_dot_product_attention(q, k, v, enable_gqa=True)).abs().max())
    off = (tiled - out).norm(dim=(2, 3)) / out.norm(dim=(2, 3))  # (repeats, heads)
    measure_mean("heads.tiled_off", off.mean(-1), unit="ratio")
    measure("heads.tiled_wrong_heads", int((off.mean(0) > 1e-9).sum()))
    reads = heads_read(n_heads, n_kv_heads)
    measure("heads.reads_before_border", int(reads[size - 1]))
    measure("heads.reads_after_border", int(reads[size]))
    for name, groups in (("own", n_heads), ("grouped", n_kv_heads), ("shared", 1)):
        layer = MultiHeadAttention(n_heads * d, n_heads, groups)
        measure(f"heads.kv_numbers_{name}", 2 * groups * d)
        measure(f"heads.parameters_{name}", sum(p.numel() for p in layer.parameters()))
    return {"reads": reads, "tiled": torch.arange(n_heads) % n_kv_heads}


def heads_read(n_heads: int, n_kv_heads: int) -> Tensor:
    """Which key and value head each query head reads, (n_heads,): value head g holds the number g."""
    q, k = torch.zeros(1, n_heads, 1, 1), torch.zeros(1, n_kv_heads, 1, 1)
    return attend(q, k, torch.arange(float(n_kv_heads)).view(1, -1, 1, 1)).flatten().round().long()
