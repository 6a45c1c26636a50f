"""Averages that the exercise of chapter 1 hands to the reader's test: some whose rows of weights sum to 1, some not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from attnbook.lab.step import Array


def attention(q: Any, k: Any, v: Any, *, weights: str) -> Any:
    """A weighted average of the values, with weights of a kind in `ROWS_SUM` or in `ROWS_DO_NOT`.

    q (…, t_q, d), k (…, t_kv, d), v (…, t_kv, d_v) -> (…, t_q, d_v): of NumPy arrays an array, of torch tensors a
    tensor, calculated in their own dtype. A test that compares with `== 1` must meet real rounding.
    """
    queries, keys, values = (_array(x) for x in (q, k, v))
    scores = queries @ np.swapaxes(keys, -1, -2)
    out = KINDS[weights](scores, float(np.sqrt(queries.shape[-1]))) @ values
    return q.new_tensor(out) if hasattr(q, "new_tensor") else out


def _array(x: Any) -> Array:
    """An array of what a reader may pass: a tensor, also one with a gradient or in half precision; lists; integers."""
    if hasattr(x, "detach"):
        x = x.detach()
        x = (x if x.dtype.itemsize >= 4 else x.float()).numpy()
    x = np.asarray(x)
    return np.asarray(x, x.dtype if x.dtype in (np.float32, np.float64) else np.float64)


def _softmax(x: Array, axis: int | tuple[int, ...] = -1) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def _nearest(x: Array, root: float) -> Array:
    """All the weight on one key, the one with the largest score."""
    return np.asarray(np.eye(x.shape[-1], dtype=x.dtype)[x.argmax(-1)])


def _uneven(x: Array, root: float) -> Array:
    """Rows that sum to 0.5 … 1.5: on average to 1."""
    factor = np.linspace(0.5, 1.5, x.shape[-2], dtype=x.dtype)
    return np.asarray(_softmax(x / root) * factor[:, None])


def _doubled(x: Array, root: float, row: int) -> Array:
    weight = _softmax(x / root)
    weight[..., row, :] *= 2
    return weight


Kind = Callable[[Array, float], Array]
"""Weights (…, t_q, t_kv) from the dot products of the same shape and √d."""

ROWS_SUM: Final[dict[str, Kind]] = {
    "softmax of each row": lambda x, root: _softmax(x / root),
    "softmax of each row, without the scale": lambda x, root: _softmax(x),
    "all on the nearest key": _nearest,
    "equal": lambda x, root: np.full_like(x, 1 / x.shape[-1]),
}
ROWS_DO_NOT: Final[dict[str, Kind]] = {
    "softmax of each column": lambda x, root: _softmax(x / root, axis=-2),
    "softmax of the whole table": lambda x, root: _softmax(x / root, axis=(-2, -1)),
    "the first row doubled": partial(_doubled, row=0),
    "the last row doubled": partial(_doubled, row=-1),
    "rows that sum to 1 on average": _uneven,
    "softmax of each row, times 0.98": lambda x, root: _softmax(x / root) * x.dtype.type(0.98),
    "softmax of each row, times 1.02": lambda x, root: _softmax(x / root) * x.dtype.type(1.02),
    "exponentials, not divided by their sum": lambda x, root: np.exp(x / root),
    "the scores themselves": lambda x, root: x / root,
}
KINDS: Final = {**ROWS_SUM, **ROWS_DO_NOT}
