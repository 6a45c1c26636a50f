"""Attention with everything that chapters 1 to 5 add to the three lines: masks, causality, grouped heads, log-sum-exp.

Written to be read and to be compared with, in NumPy or torch. It holds all the scores at once: memory t_q × t_kv.
Vaswani et al. 2017, equation 1 and section 3.2.3; heads that share keys and values: Ainslie et al. 2023.
"""

from __future__ import annotations

from typing import Any

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.arrays import Array, namespace, working_dtype
from attnbook.reference.masks import causal_mask, split_mask
from attnbook.reference.softmax import logsumexp, softmax
from attnbook.shapes import check_attention, check_mask


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """softmax(scale · q kᵀ + mask) v, for every head of every sequence.

    q (b, n_heads, t_q, d), k (b, n_kv_heads, t_kv, d), v (b, n_kv_heads, t_kv, d_v) -> out (b, n_heads, t_q, d_v), in
    the dtype of q; with `return_lse` also the natural log-sum-exp of each query's scores, lse (b, n_heads, t_q).

    - `mask` broadcasts to (b, n_heads, t_q, t_kv): booleans, True = may attend, or floats to be added (`split_mask`).
    - `is_causal`: query i sees key j when j ≤ i + t_kv − t_q (`causal_mask`); together with `mask`, both must allow.
    - `scale` multiplies the scores, before anything is added; 1/√d where it is not given.
    - Grouped heads share keys and values contiguously, head h using h // (n_heads // n_kv_heads):

          n_heads = 4, n_kv_heads = 2       q head   0 1 2 3
                                            kv head  0 0 1 1

    A query that may see no key gets output 0, lse −inf, gradients 0. Any axis may be empty except d. Calculated in
    float32, or float64 for float64 input; lse stays in that. A NaN or inf in v reaches every query of its head, seen
    or not, because 0 · NaN is NaN.

    Raises ShapeError and DTypeError, naming axis, expectation and value; TypeError where NumPy and torch are mixed.
    """
    sizes = check_attention(q, k, v)
    xp = namespace(q, k, v, mask)
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise DTypeError(f"{name} has dtype {x.dtype} but q has {q.dtype}: they must be equal")
    if scale is None:
        if sizes.head_dim == 0:
            raise ShapeError("q has head_dim 0 (axis d): expected at least 1, or a scale")
        scale = 1 / sizes.head_dim**0.5
    working = working_dtype("q", q)

    allowed, bias = split_mask(mask, like=q)
    if mask is not None:
        check_mask(mask, sizes)
    if is_causal:
        allowed = allowed & causal_mask(sizes.t_q, sizes.t_kv, like=q)

    group = sizes.n_heads // sizes.n_kv_heads if sizes.n_kv_heads else 1
    k, v = (xp.repeat(x, group, axis=1) for x in (k, v))  # (b, n_heads, t_kv, …), each head `group` times in a row
    score = xp.astype(q, working) @ xp.astype(k, working).mT * scale  # (b, n_heads, t_q, t_kv)
    score = xp.where(allowed, score + xp.astype(bias, working), -xp.inf)
    weight = softmax(score)  # rows sum to 1, or are 0 where nothing is allowed
    out = xp.astype(weight @ xp.astype(v, working), q.dtype)  # (b, n_heads, t_q, d_v)
    return (out, logsumexp(score)) if return_lse else out
