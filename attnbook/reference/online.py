"""Softmax in one pass over blocks: what is known so far is enough to go on.

Of all the scores seen so far, two numbers are kept: the largest, and the sum of exp(score − largest). When a block
brings a larger one, the old sum is scaled by exp(old − new). The same holds for whole results: two partial averages,
each with its log-sum-exp, merge into the average over both. FlashAttention is built on this.
Milakov and Gimelshein 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnbook.errors import ShapeError
from attnbook.reference.arrays import Array, check_floating, device, namespace, working_dtype
from attnbook.reference.softmax import check_axis, logsumexp, softmax


def online_softmax(x: Array, axis: int = -1, *, block: int = 128) -> Array:
    """The same as `softmax`, with the maximum and the sum collected in one pass over blocks of the axis.

    x may have any shape; the weights have the same.
    Raises ValueError for a block below 1, DTypeError for integers, ShapeError for an axis that x does not have.
    """
    xp = namespace(x)
    check_axis(x, axis)
    z = xp.moveaxis(xp.astype(x, working_dtype("x", x)), axis, -1)
    total = xp.zeros((*z.shape[:-1], 1), dtype=z.dtype, device=device(z))  # no score seen yet: sum 0 …
    top = total - xp.inf  # … and maximum −inf
    for start in _starts(z.shape[-1], block):
        part = z[..., start : start + block]
        new = xp.maximum(top, xp.max(part, axis=-1, keepdims=True))
        base = xp.where(new == -xp.inf, 0.0, new)  # all −inf so far: −inf − −inf would be NaN
        total = total * xp.exp(top - base) + xp.sum(xp.exp(part - base), axis=-1, keepdims=True)
        top = new
    weight = xp.exp(z - xp.where(top == -xp.inf, 0.0, top)) / xp.where(total == 0, 1.0, total)
    return xp.moveaxis(xp.astype(weight, x.dtype), -1, axis)


def merge(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """The weighted average over two sets of keys, from the averages over each.

    out (..., d) and its log-sum-exp lse (...) for each side -> (out, lse). A side that saw no key, (0, −inf), adds
    nothing; two such sides give (0, −inf). Calculated in the dtype of lse; out keeps its own.

    Raises ShapeError where out_b has other axes than out_a, or an lse others than out without d; DTypeError for
    integers. Not checked, for it does not show: that no key is in both sets, and that out and lse are of the same one.
    """
    for name, x in (("out_a", out_a), ("lse_a", lse_a), ("out_b", out_b), ("lse_b", lse_b)):
        check_floating(name, x)
    _check_same_axes("out_b", out_b.shape, "out_a", out_a.shape)
    _check_same_axes("lse_a", lse_a.shape, "out_a without axis d", out_a.shape[:-1])
    _check_same_axes("lse_b", lse_b.shape, "out_b without axis d", out_b.shape[:-1])
    xp = namespace(out_a, lse_a, out_b, lse_b)
    lse = xp.stack([lse_a, lse_b], axis=-1)
    weight = xp.astype(softmax(lse), lse.dtype)  # (..., 2) the share of each side
    a, b = (xp.astype(out, lse.dtype) * weight[..., side, None] for side, out in enumerate((out_a, out_b)))
    return xp.astype(a + b, out_a.dtype), logsumexp(lse)


def online_average(score: Array, v: Array, *, block: int = 128) -> tuple[Array, Array]:
    """softmax(score) @ v and the log-sum-exp of each row, never holding weights for more than one block of keys.

    score (..., t_q, t_kv), v (..., t_kv, d_v) -> out (..., t_q, d_v), lse (..., t_q). The leading axes of v may be 1 or
    left out, as where heads share it.
    Raises ShapeError where the keys of score and v differ or v's leading axes don't fit score's, DTypeError for
    integers, ValueError for a block below 1.
    """
    check_floating("score", score)
    check_floating("v", v)
    t_kv = score.shape[-1]
    if v.shape[-2] != t_kv:
        raise ShapeError(f"v has length {v.shape[-2]} (axis t) but score has {t_kv} keys: they must be equal")
    leading, expected = tuple(v.shape[:-2]), tuple(score.shape[:-2])
    pairs = zip(leading[::-1], expected[::-1], strict=False)
    if len(leading) > len(expected) or any(size not in (1, of_score) for size, of_score in pairs):
        raise ShapeError(f"v has leading axes {leading} but score has {expected}: v's must be score's, 1, or left out")
    out, lse = softmax(score[..., :0]) @ v[..., :0, :], logsumexp(score[..., :0])  # no key yet: (0, −inf)
    for start in _starts(t_kv, block):
        part = score[..., start : start + block]
        out, lse = merge(out, lse, softmax(part) @ v[..., start : start + block, :], logsumexp(part))
    return out, lse


def _check_same_axes(name: str, shape: Sequence[int], other: str, expected: Sequence[int]) -> None:
    if len(shape) != len(expected):
        raise ShapeError(f"{name} has {len(shape)} axes {tuple(shape)}: expected {len(expected)}, as {other} has")
    for axis, (size, wanted) in enumerate(zip(shape, expected, strict=True)):
        if size != wanted:
            raise ShapeError(f"{name} has length {size} (axis {axis}) but {other} has {wanted}: they must be equal")


def _starts(length: int, block: int) -> range:
    if block < 1:
        raise ValueError(f"block is {block}: expected at least 1")
    return range(0, length, block)
