"""What does a KV cache weigh: by the formula for published models, and by counting the memory of real caches?

Sizes of published models are those of the table `attnbook/costs/models.csv`, each with the file that it was read in.
The formula meets real caches twice: of a small shape in several types, and of SmolLM2 after reading a text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnbook.api.cache import KVCache
from attnbook.costs import ModelShape, kv_cache_bytes, model, names
from attnbook.experiments import _smollm2 as shared
from attnbook.measure import experiment, measure

TABLE = {
    "llama2_7": "Llama-2-7B",
    "llama3_8": "Llama-3.1-8B",
    "llama3_70": "Llama-3.1-70B",
    "qwen_7": "Qwen2.5-7B",
    "gemma_27": "Gemma-3-27B",
    "deepseek": "DeepSeek-V3",
}
"""The book's table: what a model is called in ids, and in `attnbook.costs`."""

LARGE = "llama3_70"
DTYPES = ("float64", "float32", "bfloat16", "float16")


@experiment
def run(context: int = 32768, requests: int = 24, text: str = shared.TEXT) -> dict[str, Any]:
    """Data: `names` of the table, and `context` bytes of one request of each."""
    shapes = {short: model(name) for short, name in TABLE.items()}
    whole = [measure_model(short, shape, context) for short, shape in shapes.items()]
    large = shapes[LARGE]
    one = kv_cache_bytes(large, tokens=context)
    measure("groups.all_requests", kv_cache_bytes(large, tokens=context, requests=requests), unit="B")
    for name, heads in (("own", large.n_heads), ("shared", 1)):
        measure(f"groups.large_{name}", kv_cache_bytes(replace(large, n_kv_heads=heads), tokens=context), unit="B")
    measure("groups.large_k_alone", keys_alone(large, context), unit="B")
    measure("groups.large_heads", large.n_heads, kind="cited", source=large.source)
    measure("groups.large_in_float32", kv_cache_bytes(large, tokens=context, dtype="float32") / one, unit="ratio")
    measure("groups.large_in_float8", kv_cache_bytes(large, tokens=context, dtype="float8") / one, unit="ratio")
    published = [model(name) for name in names()]
    measure("groups.with_groups", sum(has_groups(shape) for shape in published))
    latent = shapes["deepseek"].latent
    assert latent is not None
    plain = shapes["deepseek"].n_heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim)
    measure("groups.latent_smaller", plain / shapes["deepseek"].kv_elements, unit="ratio")
    measure("groups.gemma_27_windows", sum(w is not None for w in shapes["gemma_27"].windows))
    asked = model("Llama-3.1-405B")
    for key, x in {"layers": asked.layers, "kv_heads": asked.n_kv_heads, "head_dim": asked.head_dim}.items():
        measure(f"groups.exercise_{key}", x, kind="cited", source=asked.source)
    measure("groups.exercise_token", kv_cache_bytes(asked, tokens=1), unit="B")
    measure("groups.in_table", len(published))
    measure_real(text)
    measure_copies()
    return {"names": [shape.name for shape in shapes.values()], "context": whole}


def measure_model(short: str, shape: ModelShape, context: int) -> int:
    """Its sizes, as published, and what follows: bytes of one token, and of one request (returned)."""
    sizes = {"layers": shape.layers, "kv_heads": shape.n_kv_heads, "head_dim": shape.head_dim}
    if shape.latent is not None:
        sizes = {"layers": shape.layers, "latent": shape.kv_elements}
    given = [measure(f"groups.{short}_{key}", x, kind="cited", source=shape.source) for key, x in sizes.items()]
    measure(f"groups.{short}_token", kv_cache_bytes(shape, tokens=1), unit="B", derived_from=given)
    whole = kv_cache_bytes(shape, tokens=context)
    measure(f"groups.{short}_context", whole, unit="B", derived_from=given)
    return whole


def keys_alone(shape: ModelShape, context: int) -> int:
    """The bytes of a request in bfloat16 where the 2 is forgotten: the mistake, not the cache."""
    return shape.layers * shape.n_kv_heads * shape.head_dim * context * 2


def has_groups(shape: ModelShape) -> bool:
    """Do several query heads share keys and values, more than one group of them?"""
    return shape.latent is None and 1 < shape.n_kv_heads < shape.n_heads


def measure_real(text: str) -> None:
    """Real caches, filled: bytes of their memory against the formula."""
    shape = ModelShape("small", 1, 48, 12, 3, 4, 16, windows=(None,), d_ff=4)
    off = []
    for dtype in DTYPES:
        cache = filled(shape, b=5, t=7, dtype=dtype)
        off.append(abs(cache.nbytes - kv_cache_bytes(shape, tokens=7, requests=5, dtype=dtype)))
    measure("groups.real_off", max(off), unit="B")
    small, tokens = shared.model(), shared.text_tokens(text)
    caches = small.new_cache(tokens.shape[1])
    small.hidden(tokens, cache=caches)
    c = small.config
    described = ModelShape(
        "SmolLM2", c.n_layers, c.d_model, c.n_heads, c.n_kv_heads, c.head_dim, c.vocab, windows=(None,) * c.n_layers,
        d_ff=c.d_ff,
    )  # fmt: skip
    kept = sum(cache.nbytes for cache in caches)
    told = kv_cache_bytes(described, tokens=tokens.shape[1], dtype=caches[0].k.dtype)
    measure("groups.smollm2_bytes", kept, unit="B")
    measure("groups.smollm2_off", abs(kept - told), unit="B")
    measure("groups.smollm2_token", kept // tokens.shape[1], unit="B")


def filled(shape: ModelShape, b: int, t: int, dtype: str) -> KVCache:
    """A cache of one layer that holds t random tokens of b requests, and has room for no more."""
    cache = KVCache(t)
    k, v = torch.randn(2, b, shape.n_kv_heads, t, shape.head_dim).to(getattr(torch, dtype))
    cache.append(k, v)
    return cache


def measure_copies(n_heads: int = 32, n_kv_heads: int = 4, t: int = 64, d: int = 16) -> None:
    """Bytes that three ways to hand grouped keys to the query heads take on top of the cache."""
    k = torch.randn(1, n_kv_heads, t, d)
    size = n_heads // n_kv_heads
    view = k[:, :, None].expand(-1, -1, size, -1, -1)  # (1, n_kv_heads, size, t, d)
    measure("groups.repeated_bytes", memory(k.repeat_interleave(size, 1)) / memory(k), unit="ratio")
    measure("groups.expanded_bytes", memory(view) / memory(k), unit="ratio")
    measure("groups.flattened_bytes", memory(view.flatten(1, 2)) / memory(k), unit="ratio")


def memory(x: Tensor) -> int:
    """Bytes of the memory behind a tensor, of which it may be a view."""
    return x.untyped_storage().nbytes()
