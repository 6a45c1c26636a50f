"""What do the reader's two functions of step 5 find: does attention notice that words have changed places?

Embeddings are drawn; positions are the waves of the original paper. Every order of five words is tried. Functions are
of arrays or tensors: `attend(x, p)` of tokens and positions (t, d), `gap(fn, x, order)` as in the exercise.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from attnbook.experiments._attend import measure_worst
from attnbook.experiments._reader import called
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention, sinusoidal_positions

Array: TypeAlias = NDArray[Any]
Fn: TypeAlias = Callable[[Array], Array]

SWAP: Final = np.array([2, 1, 0, 3, 4])
"""From 犬が猫を追う to 猫が犬を追う: two words change places."""
CIRCLE: Final = np.array([4, 1, 0, 3, 2])
"""Three words change places in a circle: there and back are two different orders."""
TWINS: Final = (0, 2)
"""Where 人が人を呼ぶ has one and the same word."""
SIZES: Final = tuple(10.0**n for n in range(-12, 2))


def reference_attend(x: Array, p: Array) -> Array:
    """Queries and keys are x + p, values x."""
    placed = x + p
    out: Array = attention(placed[None, None], placed[None, None], x[None, None])[0, 0]
    return out


def reference_gap(fn: Fn, x: Array, order: Array) -> float:
    """The largest absolute difference between fn(x[order]) and fn(x)[order]."""
    return float(np.abs(fn(x[order]) - fn(x)[order]).max())


@experiment
def run(
    attend: Callable[[Array, Array], Array] = reference_attend,
    gap: Callable[[Fn, Array, Array], Any] = reference_gap,
    seed: int = 0,
    draws: int = 20,
    dim: int = 16,
) -> dict[str, Any]:
    """`draws` sentences of five words. Data: `sizes` (s,), and `placed`, `same` (s,), mean gaps at sizes of positions.

    Raises what the reader's functions raise.
    """
    rng = np.random.default_rng(seed)
    sentences = rng.standard_normal((draws, 5, dim))
    p: Array = np.asarray(sinusoidal_positions(5, dim), np.float64)
    same = np.repeat(p[2:3], 5, axis=0)  # every word gets the vector of the third place
    attend, gap = called(attend, gap), called(gap, attend)

    def with_(positions: Array) -> Fn:
        def fn(x: Any) -> Any:
            out = np.asarray(attend(np.asarray(x), positions))
            return torch.from_numpy(out) if isinstance(x, torch.Tensor) else out

        return fn

    orders = [np.array(order) for order in permutations(range(5))][1:]
    without = [max(float(gap(with_(0 * p), x, order)) for order in orders) for x in sentences]
    measure_worst("lab.gap_without", torch.tensor(without))
    measure_mean("lab.gap_with", [gap(with_(p), x, SWAP) for x in sentences])
    measure("lab.gap_every_order", all(gap(with_(p), x, order) > 1e-3 for x in sentences[:5] for order in orders))
    measure_worst("lab.gap_same", torch.tensor([float(gap(with_(same), x, SWAP)) for x in sentences]))

    by_size = {name: [np.mean([gap(with_(size * q), x, SWAP) for x in sentences]) for size in SIZES]
               for name, q in (("placed", p), ("same", same))}  # fmt: skip
    small = {size: mean for size, mean in zip(SIZES, by_size["placed"], strict=True) if size in (1e-4, 1e-3)}
    measure("lab.gap_tenfold", small[1e-3] / small[1e-4], unit="ratio")

    _twins(attend, sentences, p)
    _compared_wrongly(with_(0 * p), sentences)
    return {"sizes": np.array(SIZES), **{name: np.array(means) for name, means in by_size.items()}}


def _twins(attend: Callable[[Array, Array], Array], sentences: Array, p: Array) -> None:
    """The outputs of one word that stands at two places."""
    apart: dict[str, list[float]] = {"without": [], "with": []}
    for sentence in sentences:
        x = sentence.copy()
        x[TWINS[1]] = x[TWINS[0]]
        for name, positions in (("without", 0 * p), ("with", p)):
            out = np.asarray(attend(x, positions))
            apart[name].append(float(np.abs(out[TWINS[0]] - out[TWINS[1]]).max()))
    measure_worst("lab.twins_without", torch.tensor(apart["without"]))
    measure_mean("lab.twins_with", apart["with"])


def _compared_wrongly(fn: Fn, sentences: Array) -> None:
    """Two mistakes of a gap, on a function that knows nothing of the order: any gap that they find is their own."""
    one_sided = [np.abs(fn(x[SWAP]) - fn(x)).max() for x in sentences]
    measure_mean("lab.gap_one_sided", one_sided)
    for name, order in (("swap", SWAP), ("circle", CIRCLE)):
        back = np.argsort(order)
        opposed = np.array([np.abs(fn(x[order]) - fn(x)[back]).max() for x in sentences])
        if name == "swap":
            measure_worst("lab.gap_opposed_swap", torch.from_numpy(opposed))
        else:
            measure_mean("lab.gap_opposed_circle", opposed.tolist())
