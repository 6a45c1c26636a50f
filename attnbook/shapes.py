"""The axes of attention, and the checks behind every `ShapeError`.

Everything is laid out `(b, h, t, d)`: batch (sequences that do not see one another), heads, positions (tokens; t_q of
the queries, t_kv of the keys and values), components of one vector (head_dim for queries and keys, d_v for values):

    q    (b, n_heads,    t_q,  head_dim)      one row of d numbers for each query
    k    (b, n_kv_heads, t_kv, head_dim)      one row for each key; n_heads is a multiple of n_kv_heads
    v    (b, n_kv_heads, t_kv, d_v)           one row for each key; d_v is usually head_dim and need not be
    mask (b, n_heads,    t_q,  t_kv)          or anything that broadcasts to it
    out  (b, n_heads,    t_q,  d_v)
    lse  (b, n_heads,    t_q)

Only `.shape` is read here, so the checks serve NumPy arrays and torch tensors alike and import neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from attnbook.errors import ShapeError

AXES = {"b": "batch", "h": "heads", "t": "positions", "d": "components"}
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


def check_attention(q: Shaped, k: Shaped, v: Shaped) -> AttentionSizes:
    """The sizes of `attention(q, k, v)`; raises ShapeError for the first axis that does not fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_axes(name, x, "b h t d")
    b, n_heads, t_q, head_dim = (int(size) for size in q.shape)
    _, n_kv_heads, t_kv, d_v = (int(size) for size in v.shape)
    for name, x in (("k", k), ("v", v)):
        _check_equal(name, x.shape[0], "q", b, "batch {} (axis b)")
    _check_equal("k", k.shape[3], "q", head_dim, "head_dim {} (axis d)")
    _check_equal("v", n_kv_heads, "k", k.shape[1], "{} heads (axis h)")
    _check_equal("v", t_kv, "k", k.shape[2], "length {} (axis t)")
    if n_heads % n_kv_heads if n_kv_heads else n_heads:
        raise ShapeError(
            f"k has {n_kv_heads} heads (axis h) but q has {n_heads}: n_heads must be a multiple of n_kv_heads"
        )
    return AttentionSizes(b, n_heads, n_kv_heads, t_q, t_kv, head_dim, d_v)


def check_mask(mask: Shaped, sizes: AttentionSizes) -> None:
    """Raises ShapeError unless the mask broadcasts to the scores' shape, aligned at the last axis."""
    shape = tuple(int(size) for size in mask.shape)
    if len(shape) > 4:
        raise ShapeError(f"mask has {len(shape)} axes {shape}: expected at most 4, (b, h, t_q, t_kv) = {sizes.scores}")
    for axis, size, expected in zip(("t_kv", "t_q", "h", "b"), shape[::-1], sizes.scores[::-1], strict=False):
        if size not in (1, expected):
            allowed = "1" if expected == 1 else f"{expected} or 1"
            raise ShapeError(
                f"mask has length {size} along axis {axis} but the scores have {expected}: must be {allowed}"
            )


def check_axes(name: str, x: Shaped, axes: str) -> None:
    """Raises ShapeError unless x has as many axes as `axes` names, letters of `AXES` as in `"b h t d"`."""
    names = axes.split()
    if len(x.shape) != len(names):
        shape = tuple(int(size) for size in x.shape)
        meant = ", ".join(AXES[letter] for letter in names)
        raise ShapeError(f"{name} has {len(shape)} axes {shape}: expected {len(names)}, ({', '.join(names)}): {meant}")


def _check_equal(name: str, size: int, other: str, expected: int, words: str) -> None:
    if size != expected:
        raise ShapeError(f"{name} has {words.format(size)} but {other} has {expected}: they must be equal")
