"""One token at a time: how many operations does a byte of the cache get, with heads in groups of every size?

Operations are counted by torch's own counter while a token attends to a real cache, bytes are those of the cache's
memory. A processor's figures come from its data sheet; what follows from dividing by them is a bound, no measurement.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Linear
from torch.utils.flop_counter import FlopCounterMode

from attnbook.costs import attention_flops, bytes_of, kv_cache_bytes, model, weight_bytes
from attnbook.measure import experiment, measure
from attnbook.reference import KVCache, attend

SHEET = "NVIDIA H200 Tensor Core GPU data sheet, H200 SXM"
PEAK_SPARSE = 1979e12
"""Operations a second in bfloat16, as the sheet has it: with half of the weights zero in a pattern."""
BANDWIDTH = 4.8e12
MEMORY = 141e9
SIZES = (1, 2, 4, 8)


@experiment
def run(n_heads: int = 8, t: int = 256, d: int = 64, rows: int = 16, context: int = 32768, seed: int = 0) -> Any:
    """Data: `sizes` of a group, `intensity` in operations a byte (sizes,), `ridge` of the card."""
    torch.manual_seed(seed)
    intensity = [per_byte(n_heads, n_heads // size, t, d) for size in SIZES]
    for size, found in zip(SIZES, intensity, strict=True):
        measure(f"groups.intensity_{size}", found)
    measure("groups.intensity_many", per_byte(n_heads, n_heads // SIZES[-1], t, d, b=rows))
    measure("groups.weights_intensity_one", linear_per_byte(1, d))
    measure("groups.weights_intensity_many", linear_per_byte(rows, d))
    sparse = measure("groups.peak_sparse", PEAK_SPARSE, unit="FLOP", kind="cited", source=SHEET)
    bandwidth = measure("groups.bandwidth", BANDWIDTH, unit="B", kind="cited", source=SHEET)
    ridge = PEAK_SPARSE / 2 / BANDWIDTH
    both = [sparse, bandwidth]
    measure("groups.ridge", ridge, derived_from=both)
    measure("groups.share_own", intensity[0] / ridge, unit="ratio", derived_from=both)
    measure("groups.share_grouped", intensity[-1] / ridge, unit="ratio", derived_from=both)
    latent = model("DeepSeek-V3").latent
    assert latent is not None
    heads, kept = model("DeepSeek-V3").n_heads, latent.kv_lora_rank + latent.qk_rope_head_dim
    read = attention_flops(1, t, n_heads=heads, n_kv_heads=1, head_dim=kept, d_v=latent.kv_lora_rank)
    measure("groups.latent_intensity", (read.scores + read.values) / bytes_of(t * kept, "bfloat16"))
    measure_step(rows, context)
    return {"sizes": SIZES, "intensity": intensity, "ridge": ridge}


def measure_step(requests: int, context: int) -> None:
    """What one step of an 8-billion model reads: its weights once, and every request's cache."""
    shape = model("Llama-3.1-8B")
    cache = kv_cache_bytes(shape, tokens=context, requests=requests)
    # Of the embedding's table only the rows of the new tokens are read.
    weights = weight_bytes(shape) - bytes_of(shape.vocab * shape.d_model, "bfloat16")
    read = [
        measure("groups.step_weights", weights, unit="B"),
        measure("groups.step_cache", cache, unit="B"),
    ]
    measure("groups.step_cache_share", cache / (weights + cache), unit="ratio", derived_from=read)
    measure("groups.step_time", (weights + cache) / BANDWIDTH, unit="s", derived_from=[*read, "groups.bandwidth"])
    size = shape.n_heads // shape.n_kv_heads
    own = weights + size * cache
    measure("groups.step_own", own, unit="B", derived_from=read)
    measure("groups.step_time_own", own / BANDWIDTH, unit="s", derived_from=[*read, "groups.bandwidth"])
    memory = measure("groups.memory", MEMORY, unit="B", kind="cited", source=SHEET)
    measure("groups.step_fits", weight_bytes(shape) + cache < MEMORY < own, derived_from=[*read, memory])


def per_byte(n_heads: int, n_kv_heads: int, t: int, d: int, b: int = 1) -> float:
    """Operations of one new token of each of b requests a byte of their caches of t tokens in bfloat16."""
    cache = KVCache(t)
    k, v = torch.randn(2, b, n_kv_heads, t, d, dtype=torch.bfloat16)
    cache.append(k, v)
    with FlopCounterMode(display=False) as counter:
        attend(torch.randn(b, n_heads, 1, d, dtype=torch.bfloat16), cache)
    return float(counter.get_total_flops() / cache.nbytes)


@torch.no_grad()
def linear_per_byte(rows: int, d: int) -> float:
    """Operations a byte of a linear map's weights in bfloat16 that `rows` tokens go through at once."""
    layer = Linear(d, d, bias=False, dtype=torch.bfloat16)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(rows, d, dtype=torch.bfloat16))
    return float(counter.get_total_flops() / layer.weight.nbytes)
