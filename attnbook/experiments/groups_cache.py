"""Reading everything again for each token, or keeping keys and values: what is calculated, and is it the same?

A small transformer of grouped heads reads `t` tokens one after another. Operations are those that torch carries out, by
its own counter, in the reference's attention (whose products the counter sees); logits are compared in float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from attnbook.costs import attention_flops
from attnbook.measure import experiment, measure
from attnbook.models import Transformer
from attnbook.reference import KVCache, MultiHeadAttention, attend, attention

VOCAB = 16


@experiment
def run(
    t: int = 64, d_model: int = 64, n_heads: int = 8, n_kv_heads: int = 2, n_layers: int = 2, seed: int = 0
) -> dict[str, Any]:
    """Data: `again` and `kept`, the operations of each token (t,), reading everything again and with a cache."""
    model = small(d_model, n_heads, n_kv_heads, n_layers, seed)
    tokens = torch.randint(VOCAB, (1, t), generator=torch.Generator().manual_seed(seed))
    caches = [KVCache(t) for _ in range(n_layers)]
    again, kept, error = [], [], 0.0
    for i in range(t):
        whole, operations = counted(model, tokens[:, : i + 1])
        again.append(operations)
        one, operations = counted(model, tokens[:, i : i + 1], caches=caches)
        kept.append(operations)
        error = max(error, float((whole[:, -1] - one[:, 0]).abs().max()))
    measure("groups.cached_error", error)
    measure("groups.tokens_again", sum(i + 1 for i in range(t)), unit="token")
    measure("groups.tokens_kept", t, unit="token", kind="parameter")
    measure("groups.flops_last_again", again[-1])
    measure("groups.flops_last_kept", kept[-1])
    measure("groups.flops_ratio", sum(again) / sum(kept), unit="ratio")
    measure("groups.map_error", error_of_map(t, n_heads, n_kv_heads, seed))
    # Both kinds of attention by the formula: t² scores at each length, or one row of them.
    sizes: dict[str, Any] = {
        "n_heads": n_heads,
        "head_dim": d_model // n_heads,
        "n_kv_heads": n_kv_heads,
        "d_model": d_model,
    }
    rows = [n_layers * attention_flops(1, i + 1, **sizes).scores for i in range(t)]
    tables = [n_layers * attention_flops(i + 1, **sizes).scores for i in range(t)]
    linear = kept[0] - 2 * rows[0]
    as_counted = [linear + 2 * row for row in rows] == kept
    as_counted &= [linear * (i + 1) + 2 * table for i, table in enumerate(tables)] == again
    measure("groups.flops_as_counted", as_counted)
    return {"again": again, "kept": kept}


def small(d_model: int, n_heads: int, n_kv_heads: int, n_layers: int, seed: int) -> Transformer:
    """A model in float64 that attends by the reference, cached or not."""
    model = Transformer(
        VOCAB, d_model=d_model, n_layers=n_layers, n_heads=n_heads, n_kv_heads=n_kv_heads, seed=seed
    ).double()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            vars(module).update(attend=attention, attend_cached=attend)
    return model


def error_of_map(t: int, n_heads: int, n_kv_heads: int, seed: int) -> float:
    """Does a new token's query head read the head of the cache that torch has it read? The largest difference."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, n_heads, 1, 8, dtype=torch.float64, generator=generator)
    k, v = torch.randn(2, 1, n_kv_heads, t, 8, dtype=torch.float64, generator=generator)
    cache = KVCache()
    cache.append(k, v)
    return float((attend(q, cache) - scaled_dot_product_attention(q, k, v, enable_gqa=True)).abs().max())


@torch.no_grad()
def counted(model: Transformer, tokens: Tensor, **options: Any) -> tuple[Tensor, int]:
    """The logits of a call, and the operations of all its products."""
    with FlopCounterMode(display=False) as counter:
        logits: Tensor = model(tokens, **options)
    return logits, counter.get_total_flops()
