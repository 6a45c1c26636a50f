"""Up to which score does a softmax of the lab's step 3 work, and what does each wrong thing to subtract change?

Functions are softmax(x) over the last axis, of arrays or tensors: the reader's own, and as it was before the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnbook.experiments._reader import called
from attnbook.measure import experiment, measure
from attnbook.reference import naive_softmax, softmax

Array: TypeAlias = NDArray[Any]
Fn: TypeAlias = Callable[[Array], Any]

MANY: Final = 1024
SWEEP: Final = range(-110, 111)


def _less(taken: Callable[[Array], Any]) -> Fn:
    """Softmax with something subtracted first: what `taken` makes of x."""
    return lambda x: naive_softmax(x - taken(x))


WRONG: Final[dict[str, Fn]] = {
    "minimum": _less(lambda x: x.min(axis=-1, keepdims=True)),
    "mean": _less(lambda x: x.mean(axis=-1, keepdims=True)),
    "absolute": _less(lambda x: np.abs(x).max(axis=-1, keepdims=True)),
    "whole": _less(np.max),
}

ROWS: Final[dict[str, Callable[[int], Any]]] = {
    "high": lambda s: [s, 0],
    "low": lambda s: [-s, -s],
    "below": lambda s: [[0, 0], [-s, -s]],
    "many": lambda s: [s] * MANY,
}
"""Scores that lie farther and farther out as s grows."""


@experiment
def run(softmax: Fn = softmax, naive: Fn = naive_softmax, farthest: int = 1000) -> dict[str, Any]:
    """Whole scores up to `farthest`. Data: `scores`, and the first weight of [s, s − 1], `naive`, `softmax`, (s,)."""
    softmax, naive = called(softmax), called(naive)
    with np.errstate(all="ignore"):
        for dtype in ("float16", "float32", "float64"):
            measure(f"lab.naive_high_{dtype}", breaks(naive, "high", dtype, farthest))
        measure("lab.naive_low", breaks(naive, "low", "float32", farthest))
        for name, row in (("minimum", "high"), ("mean", "high"), ("absolute", "low"), ("whole", "below")):
            measure(f"lab.{name}_breaks", breaks(WRONG[name], row, "float32", farthest))
        silent, loud = breaks(naive, "many", "float32", farthest), breaks(naive, "many", "float32", farthest, np.isnan)
        measure("lab.naive_many_silent", silent)
        measure("lab.naive_many_sum", float(np.sum(naive(_scores("many", silent, "float32")))))
        measure("lab.naive_many_nan", loud)
        measure("lab.naive_many_between", loud - silent)
        before = breaks(naive, "low", "float32", farthest) - 1
        last = np.asarray(naive(np.asarray([-before, -before - 1], np.float32)))
        measure("lab.naive_low_last", last[0])
        measure(
            "lab.absolute_is_worse",
            breaks(WRONG["absolute"], "low", "float32", farthest) < breaks(naive, "low", "float32", farthest),
        )
        measure("lab.softmax_holds", not _ever(softmax, farthest))
        curves = {name: [np.asarray(fn(np.asarray([s, s - 1], np.float32)))[0] for s in SWEEP]
                  for name, fn in (("naive", naive), ("softmax", softmax))}  # fmt: skip
    measure("lab.softmax_is_steady", len(set(map(float, curves["softmax"]))) == 1)
    measure("lab.softmax_first", curves["softmax"][0])
    return {"scores": np.asarray(SWEEP), **{name: np.asarray(curve) for name, curve in curves.items()}}


def _scores(row: str, s: int, dtype: str) -> Array:
    return np.asarray(ROWS[row](s), dtype)


def _off(weights: Array) -> Any:
    """Rows that do not sum to 1, NaN included."""
    return ~(np.abs(weights.sum(axis=-1) - 1) < 0.01)


def breaks(fn: Fn, row: str, dtype: str, farthest: int, bad: Callable[[Array], Any] = _off) -> int:
    """The first whole s at which the weights of ROWS[row] are `bad`; `farthest` + 1 if none is."""
    for s in range(1, farthest + 1):
        if np.any(bad(np.asarray(fn(_scores(row, s, dtype)), np.float64))):
            return s
    return farthest + 1


def _ever(fn: Fn, farthest: int) -> bool:
    """Do the weights of any of these rows fail to sum to 1, in float32 or float64, or at the largest powers of ten?"""
    if any(breaks(fn, row, dtype, farthest) <= farthest for row in ROWS for dtype in ("float32", "float64")):
        return True
    largest = (np.asarray([sign * 10.0**power, 0], np.float32) for power in range(3, 39) for sign in (1, -1))
    return any(bool(_off(np.asarray(fn(x), np.float64)).any()) for x in largest)
