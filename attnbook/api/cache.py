"""`attend`: attention of the newest tokens over a cache of keys and values, through the door."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from attnbook.api import kernels
from attnbook.api.attention import attention
from attnbook.api.autocast import cast
from attnbook.api.call import brought
from attnbook.api.traced import traced
from attnbook.reference.kv_cache import KVCache, PagedKVCache, RingKVCache
from attnbook.reference.kv_cache import attend as attend_through
from attnbook.tiled.decode import ROWS
from attnbook.tiled.uncast import uncast

__all__ = ["KVCache", "PagedKVCache", "RingKVCache", "attend"]


def attend(
    q: Tensor,
    cache: KVCache | RingKVCache | PagedKVCache,
    *,
    is_causal: bool = True,
    window: int | None = None,
    impl: str = "auto",
    **options: Any,
) -> Any:
    """`attnbook.attention(q, k, v, …)` for the newest t_q tokens, with k and v from the cache.

    q (b, n_heads, t_q, d), whose keys were appended already -> out (b, n_heads, t_q, d_v), and lse (b, n_heads, t_q)
    with `return_lse=True`. `impl` and the other options are those of `attention`; causal unless you say otherwise.
    "triton" reads a few queries' keys in pages where they lie, and gathers them for more, or for a backward pass; on a
    GPU "auto" takes it if it runs there.

        cache = KVCache()
        cache.append(k, v)
        out = attend(q, cache)

    What each cache makes of masks, windows and lengths, and what is raised: `attnbook.reference.attend`. Besides,
    what `attention` raises for `impl`.
    """
    if not isinstance(q, Tensor):
        raise TypeError(f"q is a {type(q).__name__}: expected a torch tensor, for that is what a cache keeps")
    if not isinstance(cache, KVCache | RingKVCache | PagedKVCache):
        raise TypeError(f"cache is a {type(cache).__name__}: expected a KVCache, RingKVCache or PagedKVCache")
    for name in ("alibi_slopes", "sinks"):
        if name in options:
            options[name] = brought(name, options[name], q)
    options |= {"is_causal": is_causal, "window": window}
    q = cast(q, q, q)[0]
    through = functools.partial(attention, impl=impl)
    if isinstance(cache, PagedKVCache) and _reads_pages(q, cache, impl, options):
        with uncast(q):
            return attend_through(q, cache, attention=through, paged=kernels.paged, **options)
    return attend_through(q, cache, attention=through, **options)


def _reads_pages(q: Tensor, cache: PagedKVCache, impl: str, options: dict[str, Any]) -> bool:
    """Is this for the kernels that read pages: few queries, no gradient, and they can?"""
    if q.ndim != 4 or traced(q) or not (impl == "triton" or (impl == "auto" and q.is_cuda)):
        return False
    k_pages, v_pages = cache.pages
    given = [x for x in (q, *options.values()) if isinstance(x, Tensor)]
    trains = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    group = q.shape[1] // max(k_pages.shape[1], 1)
    if trains or group * q.shape[2] > ROWS or q.dtype != k_pages.dtype:
        return False
    return kernels.unavailable(q, q.shape[3], v_pages.shape[3]) is None
