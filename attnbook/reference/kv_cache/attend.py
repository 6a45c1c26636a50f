"""The queries of the newest tokens against everything that a cache keeps.

The last query and the last key are the same token, so bottom-right alignment of the causal mask is all it takes: query
i of t_q sees key j of t_kv when j ≤ i + t_kv − t_q, for a whole prompt, a chunk of it, or one token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.reference.attention import attention as reference_attention
from attnbook.reference.kv_cache.contiguous import KVCache
from attnbook.reference.kv_cache.paged import PagedKVCache
from attnbook.reference.kv_cache.ring import RingKVCache
from attnbook.shapes import check_attention, check_axes, check_mask

Cache: TypeAlias = KVCache | RingKVCache | PagedKVCache


def attend(
    q: Tensor,
    cache: Cache,
    *,
    attention: Callable[..., Any] = reference_attention,
    paged: Callable[..., Any] | None = None,
    is_causal: bool = True,
    window: int | None = None,
    **options: Any,
) -> Any:
    """`attention(q, k, v, …)` for the newest t_q tokens, with k and v from the cache.

    q (b, n_heads, t_q, d), whose keys were appended already -> out (b, n_heads, t_q, d_v), and lse (b, n_heads, t_q)
    with `return_lse=True`. `options` are those of `attention`, which may be any function of that interface.

    - A `mask` counts all positions since the beginning, kept or not: its last axis is 1 or the greatest length.
    - `RingKVCache`: `window` is the cache's, or a smaller one; `is_causal=False` is an error, for what a query may see
      is no longer all there.
    - `PagedKVCache`: every sequence is calculated by itself, with its own length, and gets the same result alone and in
      any batch. Where the last append had `new_lengths`, q has the same rows: those beyond give 0, lse −inf.
    - `paged`: a function for such a cache that reads the pages where they lie. It takes q, the cache, how many rows of
      q each sequence has, and the options, and gives out and lse; `attention` is not called then.

    Raises ShapeError where the cache has no keys for q's rows (causal), or has other sequences; ValueError for the
    options above and for an empty cache; TypeError for something that is no cache; and what `attention` raises.
    """
    if not isinstance(cache, Cache):
        raise no_cache(cache)
    check_axes("q", q, "b h t d")
    if window is not None:
        options["window"] = window
    if isinstance(cache, PagedKVCache):
        return _attend_pages(q, cache, attention, paged, is_causal, options)
    k, v = cache.k, cache.v
    if isinstance(cache, RingKVCache):
        options = _ring_options(q, k, v, cache, is_causal, window, options)
    elif is_causal:
        _check_rows(q.shape[2], len(cache), "the cache has")
    return attention(q, k, v, is_causal=is_causal, **options)


def no_cache(given: object) -> TypeError:
    """The error for what was given as a cache and is none."""
    return TypeError(f"cache is a {type(given).__name__}: expected a KVCache, RingKVCache or PagedKVCache")


def _ring_options(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cache: RingKVCache,
    is_causal: bool,
    window: int | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """The options for what the ring still has: its window, and the mask's columns of the keys kept."""
    if not is_causal:
        raise ValueError(f"is_causal is False but the cache keeps a window of {cache.window}: expected is_causal=True")
    window = cache.window if window is None else window
    if window > cache.window:
        raise ValueError(f"window is {window} but the cache keeps {cache.window}: expected at most that")
    kept, total = k.shape[2], len(cache)
    _check_rows(q.shape[2], total if kept == total else kept - (window - 1), "the cache still has the window of")
    mask = options.get("mask")
    if mask is not None:
        check_mask(mask, dataclasses.replace(check_attention(q, k, v), t_kv=total))
        if mask.ndim and mask.shape[-1] != 1:
            mask = mask[..., total - kept :]
    return {**options, "mask": mask, "window": window}


def _attend_pages(
    q: Tensor,
    cache: PagedKVCache,
    attention: Callable[..., Any],
    paged: Callable[..., Any] | None,
    is_causal: bool,
    options: dict[str, Any],
) -> Any:
    """One sequence after another: no filling among the keys, so none that must be hidden."""
    sizes = check_attention(q, *cache.axes())
    mask, slopes = options.pop("mask", None), options.pop("alibi_slopes", None)
    if mask is not None:
        check_mask(mask, sizes)
    return_lse = options.pop("return_lse", False)
    new_rows = cache.new_rows(sizes.t_q)
    for b, (rows, length) in enumerate(zip(new_rows, cache.each_length(), strict=True)):
        if is_causal:
            _check_rows(rows, length, f"sequence {b} of the cache has")
    if paged is not None:
        both = paged(q, cache, new_rows, mask=mask, alibi_slopes=slopes, is_causal=is_causal, **options)
        return both if return_lse else both[0]
    out = q.new_zeros((sizes.b, sizes.n_heads, sizes.t_q, sizes.d_v))
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    lse = torch.full(out.shape[:3], -torch.inf, dtype=lse_dtype, device=q.device)
    for b, (rows, length) in enumerate(zip(new_rows, cache.each_length(), strict=True)):
        if rows == 0:
            continue
        own = dict(options)
        if mask is not None:
            own["mask"] = _part(mask, b, rows, length)
        if slopes is not None:
            own["alibi_slopes"] = slopes[b : b + 1] if slopes.ndim == 2 else slopes
        k, v = cache.sequence(b)
        if return_lse:
            out_b, lse_b = attention(q[b : b + 1, :, :rows], k, v, is_causal=is_causal, return_lse=True, **own)
            lse[b, :, :rows] = lse_b[0]
        else:
            out_b = attention(q[b : b + 1, :, :rows], k, v, is_causal=is_causal, **own)
        out[b, :, :rows] = out_b[0]
    return (out, lse) if return_lse else out


def _part(mask: Tensor, b: int, rows: int, length: int) -> Tensor:
    """One sequence's part of a mask that broadcasts to (b, h, t_q, t_kv)."""
    if mask.ndim == 4 and mask.shape[0] != 1:
        mask = mask[b : b + 1]
    if mask.ndim >= 2 and mask.shape[-2] != 1:
        mask = mask[..., :rows, :]
    return mask[..., :length] if mask.ndim and mask.shape[-1] != 1 else mask


def _check_rows(rows: int, most: int, words: str) -> None:
    if rows > most:
        raise ShapeError(
            f"q has length {rows} (axis t) but {words} {most} tokens: causal queries are those of the newest tokens"
        )
