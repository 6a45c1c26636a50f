"""`attend`: attention of the newest tokens over a cache of keys and values, through the door."""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor

from attnbook.api.attention import attention
from attnbook.api.call import brought
from attnbook.reference.kv_cache import KVCache, PagedKVCache, RingKVCache
from attnbook.reference.kv_cache import attend as attend_through

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
    through = functools.partial(attention, impl=impl)
    return attend_through(q, cache, attention=through, is_causal=is_causal, window=window, **options)
