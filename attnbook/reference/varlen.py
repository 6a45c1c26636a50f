"""Attention over sequences that lie packed, one after another along one axis: a loop that calls `attention` on each.

Packing wastes nothing on filling, and a sequence never sees another: the mask of all sequences together would be
block-diagonal. The layout and `cu_seqlens` are those of flash-attention (Dao 2023).
"""

from __future__ import annotations

import itertools
from typing import Any

from attnbook.reference.arrays import Array, namespace
from attnbook.reference.attention import attention, check_kinds
from attnbook.shapes import AttentionSizes, check_cu_seqlens, check_mask, check_options, check_varlen, whole_numbers


def attention_varlen(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    *,
    mask: Array | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alibi_slopes: Array | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """`attention` for each of several sequences that lie one after another along the first axis.

    q (t_q, n_heads, d), k (t_kv, n_kv_heads, d), v (t_kv, n_kv_heads, d_v) -> out (t_q, n_heads, d_v); with
    `return_lse` also lse (t_q, n_heads).

    Sequence n has the queries from cu_seqlens_q[n] up to cu_seqlens_q[n + 1], and its keys likewise; both hold one
    number more than there are sequences, as lists of whole numbers or arrays of an integer dtype:

        lengths 3, 0, 2       row of q      0 1 2 3 4 5      cu_seqlens_q = [0, 3, 3, 5]
                              sequence      0 0 0 2 2 .      row 5 belongs to none

    A sequence may be empty. Rows beyond the last sequence belong to none: output 0, lse −inf, gradients 0.

    The options are those of `attention`, with positions counted inside each sequence: `is_causal` aligns the ends of
    each. `mask` broadcasts to (n_heads, t_q, t_kv) of the packed axes, and only its blocks on the diagonal are read.
    `alibi_slopes` is (n_heads,) or (n_sequences, n_heads).

    Raises ShapeError for `cu_seqlens` that don't start at 0, fall, or end outside; otherwise what `attention` raises.
    """
    sizes = check_varlen(q, k, v)
    ends_q, ends_k = whole_numbers("cu_seqlens_q", cu_seqlens_q), whole_numbers("cu_seqlens_k", cu_seqlens_k)
    check_cu_seqlens(ends_q, ends_k, sizes)
    heads = (sizes.n_heads, sizes.n_kv_heads)
    packed = AttentionSizes(len(ends_q) - 1, *heads, sizes.t_q, sizes.t_kv, sizes.head_dim, sizes.d_v)
    check_options(
        packed, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    check_kinds(q, k, v, mask=mask, alibi_slopes=alibi_slopes, sinks=sinks)
    xp = namespace(q)
    if mask is not None:
        check_mask(mask, AttentionSizes(1, *heads, sizes.t_q, sizes.t_kv, sizes.head_dim, sizes.d_v))
        mask = xp.broadcast_to(mask, (1, sizes.n_heads, sizes.t_q, sizes.t_kv))

    parts = []
    bounds = zip(itertools.pairwise(ends_q), itertools.pairwise(ends_k), strict=True)
    for n, ((q_start, q_end), (k_start, k_end)) in enumerate(bounds):
        of_q, of_k = slice(q_start, q_end), slice(k_start, k_end)
        parts.append(
            attention(
                _heads_first(q[of_q]),
                _heads_first(k[of_k]),
                _heads_first(v[of_k]),
                mask=None if mask is None else mask[:, :, of_q, of_k],
                is_causal=is_causal,
                window=window,
                alibi_slopes=alibi_slopes if alibi_slopes is None or alibi_slopes.ndim == 1 else alibi_slopes[n],
                softcap=softcap,
                sinks=sinks,
                scale=scale,
                return_lse=True,
            )
        )
    rest = (_heads_first(x) for x in (q[ends_q[-1] :], k[:0], v[:0]))  # of no sequence: sees no key, and no sink
    parts.append(attention(*rest, scale=scale, return_lse=True))

    outs, lses = zip(*parts, strict=True)
    out = xp.permute_dims(xp.concat(outs, axis=2)[0], (1, 0, 2))  # (t_q, n_heads, d_v)
    lse = xp.permute_dims(xp.concat(lses, axis=2)[0], (1, 0))
    return (out, lse) if return_lse else out


def _heads_first(x: Array) -> Array:
    """(t, h, d) -> (1, h, t, d), as a batch of one sequence."""
    return namespace(x).permute_dims(x, (1, 0, 2))[None]
