"""The axes of attention, and the checks behind every `ShapeError`.

Everything is laid out `(b, h, t, d)`: batch (sequences that do not see one another), heads, positions (tokens; t_q of
the queries, t_kv of the keys and values), components of one vector (head_dim for queries and keys, d_v for values):

    q    (b, n_heads,    t_q,  head_dim)      one row of d numbers for each query
    k    (b, n_kv_heads, t_kv, head_dim)      one row for each key; n_heads is a multiple of n_kv_heads
    v    (b, n_kv_heads, t_kv, d_v)           one row for each key; d_v is usually head_dim and need not be
    mask (b, n_heads,    t_q,  t_kv)          or anything that broadcasts to it
    alibi_slopes (n_heads,) or (b, n_heads)   one slope for each head
    sinks        (n_heads,)                   one score for each head
    out  (b, n_heads,    t_q,  d_v)
    lse  (b, n_heads,    t_q)

Sequences of different lengths can also lie one after another along one axis, packed, `(t, h, d)`; `cu_seqlens` holds
the cumulative lengths, as 0, 3, 3, 8 for lengths of 3, 0 and 5.

The axes of a mixture of experts, e and f, have their checks in `attnbook.shapes_moe`.

Only `.shape` is read here, so the checks serve NumPy arrays and torch tensors alike and import neither. Lengths are
kept as they come, without int(): while torch.export traces, some are symbols, and as numbers they would be fixed.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from attnbook.errors import DTypeError, ShapeError

AXES = {
    "b": "batch",
    "h": "heads",
    "t": "positions",
    "d": "components",
    "e": "experts",
    "f": "components inside an expert",
}
"""What the letters of the layout stand for; an error that names all axes says it."""


class Shaped(Protocol):
    """Whatever has a shape."""

    @property
    def shape(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class AttentionSizes:
    """The lengths of all axes of one attention call."""

    b: int
    n_heads: int
    n_kv_heads: int
    t_q: int
    t_kv: int
    head_dim: int
    d_v: int

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """The shape of the scores and of the weights, `(b, n_heads, t_q, t_kv)`."""
        return (self.b, self.n_heads, self.t_q, self.t_kv)


@dataclass(frozen=True)
class VarlenSizes:
    """The lengths of all axes of one call on packed sequences."""

    t_q: int
    t_kv: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_v: int


def check_attention(q: Shaped, k: Shaped, v: Shaped) -> AttentionSizes:
    """The sizes of `attention(q, k, v)`; raises ShapeError for the first axis that does not fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_axes(name, x, "b h t d")
    b, n_heads, t_q, head_dim = q.shape
    _, n_kv_heads, t_kv, d_v = v.shape
    for name, x in (("k", k), ("v", v)):
        check_equal(name, x.shape[0], "q", b, "batch {} (axis b)")
    check_equal("k", k.shape[3], "q", head_dim, "head_dim {} (axis d)")
    check_equal("v", n_kv_heads, "k", k.shape[1], "{} heads (axis h)")
    check_equal("v", t_kv, "k", k.shape[2], "length {} (axis t)")
    _check_groups(n_heads, n_kv_heads)
    return AttentionSizes(b, n_heads, n_kv_heads, t_q, t_kv, head_dim, d_v)


def check_mask(mask: Shaped, sizes: AttentionSizes) -> None:
    """Raises ShapeError unless the mask broadcasts to the scores' shape, aligned at the last axis."""
    check_shaped("mask", mask)
    shape = tuple(mask.shape)
    if len(shape) > 4:
        raise ShapeError(f"mask has {len(shape)} axes {shape}: expected at most 4, (b, h, t_q, t_kv) = {sizes.scores}")
    for axis, size, expected in zip(("t_kv", "t_q", "h", "b"), shape[::-1], sizes.scores[::-1], strict=False):
        if size != expected and size != 1:
            allowed = "1" if expected == 1 else f"{expected} or 1"
            raise ShapeError(
                f"mask has length {size} along axis {axis} but the scores have {expected}: must be {allowed}"
            )


def check_options(
    sizes: AttentionSizes,
    *,
    is_causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    alibi_slopes: Shaped | None = None,
    sinks: Shaped | None = None,
) -> None:
    """Raises ValueError for an option out of its range, ShapeError for slopes or sinks that don't fit the heads."""
    if not isinstance(is_causal, bool) and not hasattr(is_causal, "dtype") and is_causal not in (0, 1):
        raise ValueError(f"is_causal is {is_causal!r}: expected True or False")
    check_window(window, is_causal=is_causal)
    if softcap is not None and not (is_real(softcap) and 0 < softcap < math.inf):
        raise ValueError(f"softcap is {softcap!r}: expected a finite number above 0, or None for no cap")
    if scale is not None and not (is_real(scale) and math.isfinite(scale)):
        raise ValueError(f"scale is {scale!r}: expected a finite number, or None for 1/√head_dim")
    if scale is None and sizes.head_dim == 0:
        raise ShapeError("q has head_dim 0 (axis d): expected at least 1, or a scale")
    for name, x, shapes in (
        ("alibi_slopes", alibi_slopes, ((sizes.n_heads,), (sizes.b, sizes.n_heads))),
        ("sinks", sinks, ((sizes.n_heads,),)),
    ):
        if x is None:
            continue
        check_shaped(name, x)
        if tuple(x.shape) not in shapes:
            expected = " or ".join(f"{axes} = {shape}" for axes, shape in zip(("(h,)", "(b, h)"), shapes, strict=False))
            raise ShapeError(f"{name} has shape {tuple(x.shape)}: expected {expected}")


def check_window(window: int | None, *, is_causal: bool) -> None:
    """Raises ValueError unless window is None or a whole number of keys, at least 1, of a causal call."""
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, numbers.Integral) or window < 1:
        raise ValueError(
            f"window is {window!r}: expected a whole number of keys, at least 1 (the query's own), or None"
        )
    if not is_causal:
        raise ValueError(f"window is {window} but is_causal is False: a window looks back, so it needs is_causal=True")


def check_varlen(q: Shaped, k: Shaped, v: Shaped) -> VarlenSizes:
    """The sizes of `attention_varlen(q, k, v, …)`, packed `(t, h, d)`; ShapeError for the first axis that is wrong."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_axes(name, x, "t h d")
    t_q, n_heads, head_dim = q.shape
    t_kv, n_kv_heads, d_v = v.shape
    check_equal("k", k.shape[2], "q", head_dim, "head_dim {} (axis d)")
    check_equal("v", n_kv_heads, "k", k.shape[1], "{} heads (axis h)")
    check_equal("v", t_kv, "k", k.shape[0], "length {} (axis t)")
    _check_groups(n_heads, n_kv_heads)
    return VarlenSizes(t_q, t_kv, n_heads, n_kv_heads, head_dim, d_v)


def check_cu_seqlens(cu_seqlens_q: Sequence[int], cu_seqlens_k: Sequence[int], sizes: VarlenSizes) -> None:
    """Raises ShapeError unless both start at 0, never fall, end inside axis t, and count the same sequences."""
    for name, cu, of, t in (
        ("cu_seqlens_q", cu_seqlens_q, "q", sizes.t_q),
        ("cu_seqlens_k", cu_seqlens_k, "k", sizes.t_kv),
    ):
        if len(cu) == 0:
            raise ShapeError(f"{name} is empty: expected 0 and then the end of each sequence")
        if cu[0] != 0:
            raise ShapeError(f"{name}[0] is {cu[0]}: expected 0, the start of the first sequence")
        for i, (start, end) in enumerate(itertools.pairwise(cu), start=1):
            if end < start:
                raise ShapeError(f"{name}[{i}] is {end} but {name}[{i - 1}] is {start}: they must not fall")
        if cu[-1] > t:
            raise ShapeError(f"{name} ends at {cu[-1]} but {of} has length {t} (axis t): expected at most {t}")
    if len(cu_seqlens_q) != len(cu_seqlens_k):
        raise ShapeError(
            f"cu_seqlens_k counts {len(cu_seqlens_k) - 1} sequences but cu_seqlens_q {len(cu_seqlens_q) - 1}: "
            "they must be equal"
        )


def whole_numbers(name: str, cu_seqlens: Any) -> list[int]:
    """Cumulative lengths as a list of ints; raises DTypeError for other numbers, ShapeError for more than one axis."""
    found = cu_seqlens.tolist() if hasattr(cu_seqlens, "tolist") else cu_seqlens
    if not isinstance(found, list | tuple) or any(isinstance(x, list | tuple) for x in found):
        shape = tuple(getattr(cu_seqlens, "shape", ())) or f"of type {type(cu_seqlens).__name__}"
        raise ShapeError(f"{name} is {shape}: expected one axis, a number more than there are sequences")
    for i, x in enumerate(found):
        if isinstance(x, bool) or not isinstance(x, numbers.Integral):
            if hasattr(cu_seqlens, "dtype"):
                raise DTypeError(f"{name} has dtype {cu_seqlens.dtype}: expected whole numbers")
            raise DTypeError(f"{name}[{i}] is {x!r}: expected a whole number")
    return [int(x) for x in found]


def check_axes(name: str, x: Shaped, axes: str) -> None:
    """Raises ShapeError unless x has as many axes as `axes` names, letters of `AXES` as in `"b h t d"`."""
    check_shaped(name, x)
    names = axes.split()
    if len(x.shape) != len(names):
        shape = tuple(x.shape)
        meant = ", ".join(AXES[letter] for letter in names)
        raise ShapeError(f"{name} has {len(shape)} axes {shape}: expected {len(names)}, ({', '.join(names)}): {meant}")


def check_shaped(name: str, x: object) -> None:
    """Raises TypeError for what has no shape, as a list or None."""
    if not hasattr(x, "shape"):
        raise TypeError(f"{name} is a {type(x).__name__}: expected an array or a tensor")


def check_equal(name: str, size: int, other: str, expected: int, words: str) -> None:
    """Raises ShapeError unless the lengths of two arrays' axes are equal; `words` as in `"{} heads (axis h)"`."""
    if size != expected:
        raise ShapeError(f"{name} has {words.format(size)} but {other} has {expected}: they must be equal")


def _check_groups(n_heads: int, n_kv_heads: int) -> None:
    if n_heads % n_kv_heads if n_kv_heads else n_heads:
        raise ShapeError(
            f"k has {n_kv_heads} heads (axis h) but q has {n_heads}: n_heads must be a multiple of n_kv_heads"
        )


def is_real(x: object) -> bool:
    """A real number, and no flag."""
    return isinstance(x, numbers.Real) and not isinstance(x, bool)
