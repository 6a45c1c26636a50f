"""Key-value caches: what was calculated for earlier tokens is kept, so that a new token costs one row of scores.

Three ways to keep it, one way to use it:

- `KVCache`: one block of memory, every position in order; grows by doubling, or has a fixed capacity.
- `RingKVCache`: the last positions only, as many as a sliding window needs, each in slot position mod slots.
- `PagedKVCache`: pages of a few positions, and for each sequence the list of its pages; sequences differ in length.

`append(k, v)` takes the new tokens' keys and values, (b, n_kv_heads, t_new, d) and (b, n_kv_heads, t_new, d_v).
`attend(q, cache)` lets the new tokens' queries look at everything kept, themselves included: bottom-right alignment
makes that the same call whatever was there before. Positions must be in the keys already (RoPE before `append`).

Sizes, dtype and device are those of the first append. What is stored has no gradient: caches are for inference. An
append that raises leaves its cache as it was.
"""

from attnbook.reference.kv_cache.attend import attend
from attnbook.reference.kv_cache.contiguous import KVCache
from attnbook.reference.kv_cache.paged import PagedKVCache
from attnbook.reference.kv_cache.ring import RingKVCache

__all__ = ["KVCache", "PagedKVCache", "RingKVCache", "attend"]
