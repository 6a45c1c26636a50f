"""Masks: which query may look at which key. True = may attend.

Boolean masks are combined as booleans, `causal & padding`, and meet the scores once, before softmax, as −inf. Nothing
is ever multiplied after softmax, and no two "very negative" numbers are added. Vaswani et al. 2017, section 3.2.3;
windows: Beltagy, Peters and Cohan 2020, section 3.1.
"""

from __future__ import annotations

from typing import Any, Literal

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.arrays import Array, device, is_floating, lowest, namespace
from attnbook.shapes import check_window


def causal_mask(t_q: int, t_kv: int | None = None, *, like: Array | None = None) -> Array:
    """May query i see key j? j ≤ i + t_kv − t_q: itself and the past, with both sequences ending together.

        t_q = 3, t_kv = 3      t_q = 2, t_kv = 4      t_q = 4, t_kv = 2
             k0 k1 k2               k0 k1 k2 k3            k0 k1
        q0    1  .  .          q0    1  1  1  .       q0    .  .     sees nothing
        q1    1  1  .          q1    1  1  1  1       q1    .  .     sees nothing
        q2    1  1  1                                 q2    1  .
                                                      q3    1  1

    -> booleans (t_q, t_kv). A NumPy array, or an array of the library and on the device of `like`. t_kv defaults to
    t_q. This is bottom-right alignment; torch's `is_causal=True` aligns top-left. The lengths are not checked.
    """
    t_kv = t_q if t_kv is None else t_kv
    i, j = _rows_and_columns(t_q, t_kv, like)
    return j <= i + (t_kv - t_q)


def window_mask(t_q: int, t_kv: int | None, window: int, *, like: Array | None = None) -> Array:
    """May query i see key j? Of the keys that `causal_mask` shows it, the last `window`: itself and window − 1 before.

        window = 2                   window = 2                      window = 1
        t_q = 4, t_kv = 4            t_q = 2, t_kv = 5               t_q = 3, t_kv = 3
             k0 k1 k2 k3                  k0 k1 k2 k3 k4                  k0 k1 k2
        q0    1  .  .  .             q0    .  .  1  1  .             q0    1  .  .
        q1    1  1  .  .             q1    .  .  .  1  1             q1    .  1  .     itself alone
        q2    .  1  1  .                                             q2    .  .  1
        q3    .  .  1  1

    i + t_kv − t_q − window < j ≤ i + t_kv − t_q -> booleans (t_q, t_kv), of the library and on the device of `like`.
    t_kv None is t_q. A window of t_kv or more is `causal_mask`. Raises ValueError for a window below 1.

    Flash-attention counts the keys before the query instead: this window is its `window_size=(window - 1, 0)`.
    """
    if window is None:
        raise ValueError("window is None: expected a whole number of keys, at least 1 (the query's own)")
    check_window(window, is_causal=True)
    t_kv = t_q if t_kv is None else t_kv
    i, j = _rows_and_columns(t_q, t_kv, like)
    return causal_mask(t_q, t_kv, like=like) & (j > i + (t_kv - t_q) - window)


def distance(t_q: int, t_kv: int, *, like: Array | None = None) -> Array:
    """How many positions lie between query i and key j: |i + t_kv − t_q − j|, with both sequences ending together.

        t_q = 3, t_kv = 3      t_q = 2, t_kv = 4
             k0 k1 k2               k0 k1 k2 k3
        q0    0  1  2          q0    2  1  0  1
        q1    1  0  1          q1    3  2  1  0
        q2    2  1  0

    -> whole numbers (t_q, t_kv), of the library and on the device of `like`. ALiBi takes slope · distance off a score.
    """
    i, j = _rows_and_columns(t_q, t_kv, like)
    xp, _ = _place(like)
    return xp.abs(i + (t_kv - t_q) - j)


def padding_mask(lengths: Array, t_kv: int, *, side: Literal["left", "right"] = "right") -> Array:
    """Which keys are tokens and which are filling? True for the first (or last) `lengths[b]` keys of each sequence.

        lengths = [3, 1], t_kv = 4      side="right": 1 1 1 .      side="left": . 1 1 1
                                                      1 . . .                   . . . 1

    lengths (b,) integers -> booleans (b, 1, 1, t_kv). `side` says where the filling is.
    Raises ShapeError for a length below 0 or above t_kv.
    """
    xp = namespace(lengths)
    for b, length in enumerate(lengths):
        if not 0 <= int(length) <= t_kv:
            raise ShapeError(f"lengths[{b}] is {int(length)} (axis b): expected 0 to {t_kv}, the length of axis t")
    if side not in ("left", "right"):
        raise ValueError(f"side is {side!r}: expected 'left' or 'right'")
    j = xp.arange(t_kv, device=device(lengths))[None, None, None, :]
    size = lengths[:, None, None, None]
    return j < size if side == "right" else j >= t_kv - size


def split_mask(mask: Array | None, like: Array) -> tuple[Array, Array]:
    """A mask of either kind as (may attend, what to add): booleans, and finite numbers (or NaN, as given).

    A floating mask is added to the scores. −inf in it hides a key; so does the most negative finite number of its own
    dtype or of the dtype of `like`, q: people write it where they mean −inf, and a whole row of it would otherwise be a
    plain average of all values. Where a key is hidden, the added number is 0, so that no −inf is left to subtract.
    None hides nothing. Raises DTypeError for a mask of integers.
    """
    xp, where = _place(like)
    if mask is None:
        return xp.asarray(True, device=where), xp.asarray(0.0, dtype=like.dtype, device=where)
    if mask.dtype == xp.bool:
        return mask, xp.asarray(0.0, dtype=like.dtype, device=where)
    if not is_floating(mask):
        raise DTypeError(f"mask has dtype {mask.dtype}: expected booleans (True = may attend) or floats to be added")
    hidden = mask <= max(lowest(mask), lowest(like))
    return ~hidden, xp.where(hidden, 0.0, mask)


def _rows_and_columns(t_q: int, t_kv: int, like: Array | None) -> tuple[Array, Array]:
    """The number of each query as a column (t_q, 1), and of each key as a row (1, t_kv)."""
    xp, where = _place(like)
    return xp.arange(t_q, device=where)[:, None], xp.arange(t_kv, device=where)[None, :]


def _place(like: Array | None) -> tuple[Any, Any]:
    """The array library and device of `like`; NumPy for None."""
    if like is None:
        import array_api_compat.numpy as xp

        return xp, "cpu"
    return namespace(like), device(like)
