"""Attention with everything that the three lines leave out: masks, windows, grouped heads, caps, slopes, sinks, lse.

`attention` checks and prepares; the formula itself is `_average`, and reads from top to bottom in the order in which
things are done: scale, cap, slopes, mask, sink, softmax, average. Written to be read and to be compared with, in NumPy
or torch. It holds all the scores at once: memory t_q × t_kv.
"""

from __future__ import annotations

from typing import Any

from attnbook.errors import DTypeError
from attnbook.reference.arrays import Array, check_alike, check_floating, device, namespace, working_dtype
from attnbook.reference.masks import causal_mask, distance, split_mask, window_mask
from attnbook.reference.softmax import logsumexp, softmax
from attnbook.shapes import AttentionSizes, check_attention, check_mask, check_options


def attention(
    q: Array,
    k: Array,
    v: Array,
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
    """softmax(scale · q kᵀ + mask) v, for every head of every sequence.

    q (b, n_heads, t_q, d), k (b, n_kv_heads, t_kv, d), v (b, n_kv_heads, t_kv, d_v) -> out (b, n_heads, t_q, d_v), in
    the dtype of q; with `return_lse` also the natural log-sum-exp of each query's scores, lse (b, n_heads, t_q).

    In the order in which they act:

    - Grouped heads share keys and values (`kv_head_of`).
    - `scale` multiplies the scores, before anything is added; 1/√d where it is not given.
    - `softcap` c: a score s becomes c · tanh(s / c), between −c and c.
    - `alibi_slopes` (n_heads,) or (b, n_heads): slope · |i + t_kv − t_q − j| is taken off the score of query i and key
      j, so that distant keys count less (`distance`).
    - `mask` broadcasts to (b, n_heads, t_q, t_kv): booleans, True = may attend, or floats to be added (`split_mask`).
    - `is_causal`: query i sees key j when j ≤ i + t_kv − t_q (`causal_mask`); together with `mask`, both must allow.
    - `window`, with `is_causal`: only the last `window` of those keys, the query's own included (`window_mask`).
    - `sinks` (n_heads,): one more score a row, that of no key: it takes weight away and brings no value. It is neither
      scaled nor capped nor masked, and lse includes it.

    A query that may see no key gets output 0, lse −inf (the sink, where there is one), gradients 0. Any axis may be
    empty (d with a scale). Calculated in float32, or float64 for float64 input; lse stays in that.

    A NaN or inf stays where it may be seen: in a row of q it reaches that row's output alone, in a row of k or v only
    queries that may see that key, whatever the weight would be; and so with gradients. A padded cache may hold garbage.
    A NaN or +inf in a floating mask spoils the rows of its queries, and no gradient of a key hidden from them.

    Raises ShapeError and DTypeError, naming axis, expectation and value; ValueError for an option out of its range or
    arrays on two devices; TypeError where NumPy and torch are mixed.

    Vaswani et al. 2017, equation 1 and section 3.2.3; grouped heads: Ainslie et al. 2023; slopes: Press et al. 2022;
    cap: Gemma Team 2024 (section 2); a learned sink: OpenAI 2025 (gpt-oss, section 2.2).
    """
    sizes = check_attention(q, k, v)
    check_options(
        sizes, is_causal=is_causal, window=window, softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks
    )
    check_kinds(q, k, v, mask=mask, alibi_slopes=alibi_slopes, sinks=sinks)
    xp, working = namespace(q), working_dtype("q", q)
    dtype, scale = q.dtype, 1 / sizes.head_dim**0.5 if scale is None else float(scale)
    softcap = None if softcap is None else float(softcap)  # a float64 of NumPy would widen float32 scores

    allowed, added = _pairs(q, sizes, working, mask, is_causal, window, alibi_slopes)
    q, k, v = (xp.astype(x, working) for x in (q, k, v))
    if sizes.n_heads != sizes.n_kv_heads:
        of = kv_head_of(xp.arange(sizes.n_heads, device=device(q)), sizes.n_heads, sizes.n_kv_heads)
        k, v = xp.take(k, of, axis=1), xp.take(v, of, axis=1)  # (b, n_heads, t_kv, …)
    sink = None if sinks is None else xp.astype(sinks, working)[:, None, None]

    if all(bool(xp.all(xp.isfinite(x))) for x in (q, k, v, added)):
        out, lse = _average(q, k, v, allowed, added, scale, softcap, sink)
    else:
        out, lse = _average_row_by_row(q, k, v, allowed, added, scale, softcap, sink)
    out = xp.astype(out, dtype)
    return (out, lse) if return_lse else out


def kv_head_of(head: Any, n_heads: int, n_kv_heads: int) -> Any:
    """Which key and value head a query head uses: contiguous groups, head // (n_heads // n_kv_heads).

        n_heads = 6, n_kv_heads = 2       query head          0 1 2 3 4 5
                                          key and value head  0 0 0 1 1 1

    `head` is one number or an array of them; n_kv_heads divides n_heads. With n_kv_heads = n_heads every head has its
    own (multi-head attention), with n_kv_heads = 1 all share one (multi-query attention). Ainslie et al. 2023.
    """
    return head // (n_heads // n_kv_heads)


def _pairs(
    q: Array,
    sizes: AttentionSizes,
    working: Any,
    mask: Array | None,
    is_causal: bool,
    window: int | None,
    alibi_slopes: Array | None,
) -> tuple[Array, Array]:
    """For every query and key: may it attend, and what is added to the score? Both (b, n_heads, t_q, t_kv)."""
    xp = namespace(q)
    allowed, added = split_mask(mask, like=q)
    if mask is not None:
        check_mask(mask, sizes)
    if window is not None:
        allowed = allowed & window_mask(sizes.t_q, sizes.t_kv, window, like=q)
    elif is_causal:
        allowed = allowed & causal_mask(sizes.t_q, sizes.t_kv, like=q)
    added = xp.astype(added, working)
    if alibi_slopes is not None:
        slope = xp.astype(alibi_slopes, working)[..., None, None]  # (n_heads, 1, 1) or (b, n_heads, 1, 1)
        added = added - slope * xp.astype(distance(sizes.t_q, sizes.t_kv, like=q), working)
    return xp.broadcast_to(allowed, sizes.scores), xp.broadcast_to(added, sizes.scores)


def _average(
    q: Array,
    k: Array,
    v: Array,
    allowed: Array,
    added: Array,
    scale: float,
    softcap: float | None,
    sink: Array | None,
) -> tuple[Array, Array]:
    """The formula, for as many key heads as query heads.

    q (b, h, t_q, d), k (b, h, t_kv, d), v (b, h, t_kv, d_v), allowed and added (b, h, t_q, t_kv), sink (h, 1, 1)
    -> out (b, h, t_q, d_v), lse (b, h, t_q).
    """
    xp = namespace(q)
    score = q @ k.mT * scale  # (b, h, t_q, t_kv)
    if softcap is not None:
        score = softcap * xp.tanh(score / softcap)
    score = xp.where(allowed, score + added, -xp.inf)
    if sink is not None:
        score = xp.concat([score, xp.broadcast_to(sink, (*score.shape[:-1], 1))], axis=-1)
    weight = softmax(score)  # rows sum to 1, or are 0 where nothing is allowed
    return weight[..., : k.shape[-2]] @ v, logsumexp(score)  # the sink has no value


def _average_row_by_row(q: Array, k: Array, v: Array, allowed: Array, added: Array, *how: Any) -> tuple[Array, Array]:
    """The same, one query at a time, with 0 in place of the keys and values that this query may not see.

    A hidden key has weight 0, and 0 · NaN is NaN: to keep what is not finite away from a query, it must not be
    multiplied at all.
    """
    xp = namespace(q)
    rows = []
    for i in range(q.shape[-2]):
        row = slice(i, i + 1)
        seen = allowed[:, :, i, :, None]  # (b, h, t_kv, 1)
        seen_k, seen_v = xp.where(seen, k, 0.0), xp.where(seen, v, 0.0)
        rows.append(_average(q[:, :, row], seen_k, seen_v, allowed[:, :, row], added[:, :, row], *how))
    if not rows:
        return _average(q, k, v, allowed, added, *how)
    out, lse = zip(*rows, strict=True)
    return xp.concat(out, axis=2), xp.concat(lse, axis=2)


def check_kinds(q: Array, k: Array, v: Array, **others: Array | None) -> None:
    """Raises TypeError, ValueError or DTypeError unless all are of one library, device and kind of number."""
    given = {"k": k, "v": v, **{name: x for name, x in others.items() if x is not None}}
    for name, x in given.items():
        check_alike(name, x, q)
    for name in ("k", "v"):
        if given[name].dtype != q.dtype:
            raise DTypeError(f"{name} has dtype {given[name].dtype} but q has {q.dtype}: they must be equal")
    for name in ("alibi_slopes", "sinks"):
        if name in given:
            check_floating(name, given[name])
