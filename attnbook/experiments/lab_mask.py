"""Which simple look at the weights finds which mistake in a causal mask, and what does a mask of −10 let through?

The reader's function is looked at first, then attention with one mistake each. With the identity matrix as v, attention
returns its own weights; all looks but one are looks at those. A function is any `(q, k, v) -> out` of arrays or tensors
(t_q, d), (t_kv, d), (t_kv, d_v).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnbook.experiments._reader import called
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention, softmax

Array: TypeAlias = NDArray[Any]
Attend: TypeAlias = Callable[[Array, Array, Array], Array]

LOOKS: Final = ("row sums", "no future", "own place", "whole past", "last alone")
"""Rows of weights sum to 1; the future gets 0; the own position gets some; so does all the past; the last query alone
gets what it gets among all."""


def reference(q: Array, k: Array, v: Array) -> Array:
    """The package's own causal attention."""
    out: Array = attention(q[None, None], k[None, None], v[None, None], is_causal=True)[0, 0]
    return out


def _masked(reach: int, hidden: float = -np.inf, *, corner: str = "right", late: bool = False) -> Attend:
    """Attention in which a query sees the keys up to `reach` beyond its own, and gives the others a score `hidden`."""

    def attend(q: Array, k: Array, v: Array) -> Array:
        scores = q @ k.T / np.sqrt(q.shape[-1])
        t_q, t_kv = scores.shape
        keep = np.tri(t_q, t_kv, (t_kv - t_q if corner == "right" else 0) + reach, dtype=bool)
        if late:
            return np.asarray(np.where(keep, softmax(scores), 0) @ v)
        return np.asarray(softmax(np.where(keep, scores, hidden)) @ v)

    return attend


def _backwards(q: Array, k: Array, v: Array) -> Array:
    """The wrong triangle: a query sees itself and what comes after it."""
    return reference(q[::-1], k[::-1], v[::-1])[::-1]


MISTAKES: Final[dict[str, Attend]] = {
    "no mask": _masked(10**6),
    "after softmax": _masked(0, late=True),
    "one more": _masked(1),
    "one less": _masked(-1, -1e9),
    "wrong way": _backwards,
    "scores to 0": _masked(0, 0.0),
    "hidden = -10": _masked(0, -10.0),
    "top left": _masked(0, corner="left"),
}


@experiment
def run(
    attend: Attend = reference, seed: int = 0, repeats: int = 100, tokens: int = 7, head_dim: int = 16
) -> dict[str, Any]:
    """`repeats` draws of q, k and v. Data: `looks` {function: whether each of `LOOKS` finds nothing}."""
    rng = np.random.default_rng(seed)
    draws = rng.standard_normal((repeats, 3, tokens, head_dim)).astype(np.float32)
    looks = {name: _looks(fn, draws) for name, fn in {"yours": called(attend), **MISTAKES}.items()}
    found = ~np.array([looks[name] for name in MISTAKES])  # (mistakes, looks): which look finds which mistake

    measure("lab.mask_nothing_found", all(looks["yours"]))
    measure("lab.mask_mistakes", len(found))
    measure("lab.mask_every_mistake_found", found.any(1).all())
    measure("lab.mask_found_by_sums", found[:, LOOKS.index("row sums")].sum())
    by_future = found[:, LOOKS.index("no future")].sum()
    measure("lab.mask_found_by_future", by_future)
    measure("lab.mask_future_is_best", by_future == found.sum(0).max())

    weak = np.stack([_weights(MISTAKES["hidden = -10"], q, k) for q, k, _ in draws])
    measure_mean("lab.mask_weak_share", weak[:, 0, 1:].sum(-1).tolist(), unit="ratio")
    for name, hidden in (("weak", -1e4), ("strong", -np.inf)):
        weights = _weights(_masked(0, hidden), *_loud())
        measure(f"lab.mask_loud_{name}", weights[0, 1])
    return {"looks": looks, "found": found}


def _weights(attend: Attend, q: Array, k: Array) -> Array:
    """The weights (t_q, t_kv) of a function: what it returns for the identity matrix."""
    return np.asarray(attend(q, k, np.eye(len(k), dtype=k.dtype)))


def _loud() -> tuple[Array, Array]:
    """Queries and keys of two tokens: the first has the score −20000 for itself and 0 for the second."""
    return np.full((2, 1), 100, np.float32), np.array([[-200], [0]], np.float32)


def _looks(attend: Attend, draws: Array) -> tuple[bool, ...]:
    """Whether each of `LOOKS` finds nothing wrong in any draw (3, t, d)."""
    fine = []
    for q, k, v in draws:
        weights = _weights(attend, q, k)
        keep = np.tri(len(q), dtype=bool)
        own, past = weights.diagonal(), weights[np.tri(len(q), k=-1, dtype=bool)]
        alone, together = np.asarray(attend(q[-1:], k, v))[0], np.asarray(attend(q, k, v))[-1]
        fine.append((
            bool(np.abs(weights.sum(-1) - 1).max() < 1e-5),
            not weights[~keep].any(),
            bool((own > 0).all()),
            bool((past > 0).all()),
            bool(np.abs(alone - together).max() < 1e-5),
        ))  # fmt: skip
    return tuple(bool(all(look)) for look in zip(*fine, strict=True))
