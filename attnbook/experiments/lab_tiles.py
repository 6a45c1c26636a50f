"""What does a tiled attention written in the lab do? Its error, its memory, and what it knows after half the keys.

A walk over tiles that stopped early would return the attention over the keys that it has seen; so the function on the
first keys alone shows how the answer grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnbook.experiments._held import held_bytes
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import three_lines

Array: TypeAlias = NDArray[Any]
Tiled: TypeAlias = Callable[[Array, Array, Array, int], Any]

BLOCKS = (1, 7, 64, 1000)
"""Keys of a tile: the smallest, one that leaves a short last tile, the usual, and more than there are."""


def walk(q: Array, k: Array, v: Array, block: int) -> Array:
    """Attention of q (t_q, d), k (t_kv, d), v (t_kv, d_v) over tiles of `block` keys: (t_q, d_v)."""
    largest, total = np.full((len(q), 1), -np.inf, q.dtype), np.zeros((len(q), 1), q.dtype)
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for start in range(0, len(k), block):
        tile = slice(start, start + block)
        scores = q @ k[tile].T / q.shape[1] ** 0.5
        new = np.maximum(largest, scores.max(1, keepdims=True))
        shrink, weights = np.exp(largest - new), np.exp(scores - new)
        total, largest = total * shrink + weights.sum(1, keepdims=True), new
        out = out * shrink + weights @ v[tile]
    return np.asarray(out / total)


@experiment
def run(tiled_attention: Tiled = walk, n: int = 512, d: int = 64, repeats: int = 20, seed: int = 0) -> dict[str, Any]:
    """The function on n normal queries, keys and values of d components, `repeats` times; tiles of 1 to 1000 keys.

    Data: `tiles` (m,), how many have been seen; `left`, for each order of the keys (m,): how far the answer so far is
    from the last one, as a share of its length.
    """
    rng = np.random.default_rng(seed)
    draws = [rng.standard_normal((3, n, d)) for _ in range(repeats)]
    _measure_errors(tiled_attention, draws)
    _measure_rises(rng, n)
    _measure_memory(tiled_attention, d)
    return _measure_growth(tiled_attention, rng, n)


def _measure_errors(tiled_attention: Tiled, draws: list[Array]) -> None:
    """In float64 against the three lines, in float32 against float64, beside the three lines in float32."""
    q, k, v = (x[:29] for x in draws[0])
    gaps = [np.abs(tiled_attention(q, k, v, block) - three_lines.attention(q, k, v)).max() for block in BLOCKS]
    measure("lab.tiles_gap", max(gaps))
    short = [[x.astype(np.float32) for x in draw] for draw in draws]
    truths = [three_lines.attention(*(x.astype(np.float64) for x in draw)) for draw in short]
    plain = [off(three_lines.attention(q, k, v), truth) for (q, k, v), truth in zip(short, truths, strict=True)]
    measure_mean("lab.tiles_error_plain", plain)
    for name, block in (("tiles", 64), ("one", len(draws[0][0]))):
        tiles = [off(tiled_attention(q, k, v, block), truth) for (q, k, v), truth in zip(short, truths, strict=True)]
        measure_mean(f"lab.tiles_error_{name}", tiles)
        measure_mean(f"lab.tiles_error_ratio_{name}", np.divide(tiles, plain), unit="ratio")
    # A number of NumPy's is a float64 and keeps its digits; a number of Python's takes the array's type.
    q, root = short[0][0], np.sqrt(short[0][0].shape[1])
    measure("lab.tiles_root_widens", (q / root).dtype == np.float64 and (q / float(root)).dtype == np.float32)


def off(x: Any, truth: Array) -> float:
    """The length of the error over that of the truth."""
    return float(np.linalg.norm(np.asarray(x, np.float64) - truth) / np.linalg.norm(truth))


def rises(score: Array, block: int) -> Array:
    """In how many tiles of `block` keys each row's largest score so far changes, the first tile among them."""
    starts = range(0, score.shape[1], block)
    tops = np.stack([score[:, start : start + block].max(1) for start in starts], 1)  # (rows, tiles)
    so_far = np.maximum.accumulate(tops, 1)
    return np.asarray(1 + (np.diff(so_far, axis=1) > 0).sum(1))


def _measure_rises(rng: np.random.Generator, n: int, rows: int = 2000, block: int = 16) -> None:
    """How often the maximum changes, for scores in any order, rising and falling; n scores a row."""
    score = rng.standard_normal((rows, n))
    tiles = -(-n // block)
    measure("lab.tiles_number", tiles)
    measure_mean("lab.tiles_rises", rises(score, block))
    measure("lab.tiles_harmonic", sum(1 / i for i in range(1, tiles + 1)))
    score.sort(axis=1)
    measure("lab.tiles_rises_rising", int(rises(score, block).min()))
    measure("lab.tiles_rises_falling", int(rises(score[:, ::-1], block).max()))


def _measure_memory(tiled_attention: Tiled, d: int, t_q: int = 256, t_kv: int = 4096, block: int = 64) -> None:
    """Bytes held while it runs, the result included, for t_kv keys and for twice as many; the three lines beside it."""
    measure("lab.tiles_table", 4 * t_q * t_kv, unit="B")
    measure("lab.tiles_tile", 4 * t_q * block, unit="B")
    ways: dict[str, Callable[[Array, Array, Array], Any]] = {
        "tiles": lambda q, k, v: tiled_attention(q, k, v, block),
        "plain": three_lines.attention,
    }
    for name, function in ways.items():
        held = [_held(function, t_q, length, d) for length in (t_kv, 2 * t_kv)]
        measure(f"lab.tiles_held_{name}", held[0], unit="B")
        measure(f"lab.tiles_doubled_{name}", held[1] / held[0], unit="ratio")


def _held(function: Callable[[Array, Array, Array], Any], t_q: int, t_kv: int, d: int) -> int:
    """Bytes that the function holds, given t_q queries and t_kv keys and values of d components in float32."""
    q, k, v = (np.zeros((t, d), np.float32) for t in (t_q, t_kv, t_kv))
    return held_bytes(lambda: function(q, k, v), like=q)


def _measure_growth(
    tiled_attention: Tiled, rng: np.random.Generator, n: int, rows: int = 20, block: int = 16
) -> dict[str, Any]:
    """The answer after each tile of the keys, `rows` times for one query; scores have a standard deviation of 3."""
    tiles = np.arange(block, n + block, block)
    left: dict[str, list[Array]] = {"any": [], "rising": [], "falling": []}
    apart = []
    for _ in range(rows):
        score, values = 3 * rng.standard_normal(n), rng.standard_normal((n, 50))
        ends = []
        for name, order in (("any", np.arange(n)), ("rising", np.argsort(score)), ("falling", np.argsort(-score))):
            k, v = score[order, None], values[order]
            grown = np.concatenate([tiled_attention(np.ones((1, 1)), k[:seen], v[:seen], block) for seen in tiles])
            left[name].append(np.linalg.norm(grown - grown[-1], axis=1) / np.linalg.norm(grown[-1]))
            ends.append(grown[-1])
        apart.append(np.ptp(ends, axis=0).max())
    for name, distances in left.items():
        far = np.array(distances) > 0.1
        measure_mean(f"lab.tiles_needed_{name}", 1 + far.sum(1))
    measure("lab.tiles_order_gap", max(apart))
    return {"tiles": tiles // block, "left": {name: np.mean(distances, 0) for name, distances in left.items()}}
