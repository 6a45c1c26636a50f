"""Step 7: attention over tiles of keys, with a running maximum, a running sum and a running output."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from attnbook.lab import flawed, overflow
from attnbook.lab.imitated import any_of, first_failure
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step

NAMES: Final = ("q", "k", "v", "block")

OF_THE_MAXIMUM: Final = (
    *("no_maximum", "start_at_zero", "start_low", "first_maximum", "forgotten_maximum", "shared_maximum"),
)
"""Right unless a score is far from what is subtracted: then exp overflows, or all of a row's weights are 0."""

DIVIDED: Final = tuple(
    frozenset({way, *others})
    for way in ("weights_divided", "tile_divided", "tile_softmax")
    for others in ((), ("not_divided",))
)
"""Ways to divide within each tile, beside those that divide the running output."""

FLAWS: Final = (
    *("whole_table", "no_rescale", "total_not_rescaled", "out_not_rescaled", "inverted_rescale"),
    *("rescale_to_tile", "own_maximum", "old_maximum", "not_divided", "divided_each_tile", "divided_twice"),
    *("tiles_averaged", "tiles_weighted", "tiles_added"),
    *(
        "last_dropped",
        "last_padded",
        "last_overlaps",
        "last_tile_only",
        "maximum_not_kept",
        "total_of_last_tile",
        "out_of_last_tile",
    ),
    *(*OF_THE_MAXIMUM, "no_scale", "scale_by_d", "wrong_axis"),
)


def tiled_attention(
    q: Array, k: Array, v: Array, block: int, count_tables: bool = False, *, flaws: frozenset[str] = frozenset()
) -> Array:
    """Attention of q (t_q, d), k (t_kv, d), v (t_kv, d_v), `block` keys to a tile: (t_q, d_v). Flaws: `FLAWS`.

    With count_tables it is what `held.tiled` returns, (1, 1): whether a table of all queries and all keys was held.
    """
    if count_tables:
        return np.full((1, 1), float("whole_table" in flaws))
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    with np.errstate(all="ignore"):  # imitations divide by 0 and overflow, as what they imitate does
        if "wrong_axis" in flaws:  # a column of weights lies in one tile, so that tiles change nothing
            return flawed.attention(q, k, v, flaws=flaws)
        scores = q @ k.T * flawed.scale(q, k, v, flaws)
        tiles = [(scores[:, part], v[part]) for part in _parts(len(k), block, flaws)]
        if "last_padded" in flaws:
            tiles[-1] = _padded(*tiles[-1], block)
        if flaws & {"tiles_averaged", "tiles_weighted", "tiles_added"}:
            return _mixed(tiles, flaws)
        return _walked(tiles, np.zeros((len(q), v.shape[-1])), flaws)


def _parts(t_kv: int, block: int, flaws: frozenset[str]) -> list[slice]:
    """Which keys are in which tile."""
    starts = range(0, t_kv - block + 1 if "last_dropped" in flaws else t_kv, block)
    if "last_overlaps" in flaws:  # moved back until it is whole
        return [slice(max(0, min(start, t_kv - block)), start + block) for start in starts]
    return [slice(start, start + block) for start in starts]


def _padded(scores: Array, v: Array, block: int) -> tuple[Array, Array]:
    """The scores and values of a tile, with keys of zeros until there are `block`."""
    missing = block - len(v)
    return np.pad(scores, ((0, 0), (0, missing))), np.pad(v, ((0, missing), (0, 0)))


def _mixed(tiles: list[tuple[Array, Array]], flaws: frozenset[str]) -> Array:
    """Each tile's own attention, and then a mean or a sum of them."""
    outs = [flawed.softmax(scores) @ v for scores, v in tiles]
    if "tiles_weighted" in flaws:
        return np.asarray(np.average(outs, axis=0, weights=[len(v) for _, v in tiles]))
    return np.asarray(np.sum(outs, axis=0) / (1 if "tiles_added" in flaws else len(outs)))


def _walked(tiles: list[tuple[Array, Array]], out: Array, flaws: frozenset[str]) -> Array:
    """The walk itself: scores (t_q, keys) and v (keys, d_v) of each tile -> (t_q, d_v). out: zeros."""
    largest = np.full((len(out), 1), -np.inf)
    for name, start in (("start_at_zero", 0.0), ("start_low", -1e4)):
        if name in flaws:
            largest[:] = start
    total = np.zeros_like(largest)
    for number, (scores, v) in enumerate(tiles):
        top = scores.max(axis=-1, keepdims=True)
        new = _subtracted(largest, top, flaws)
        base = top if "own_maximum" in flaws else largest if "old_maximum" in flaws and number else new
        weights = np.exp(scores - base)
        shrink = np.exp(largest - (top if "rescale_to_tile" in flaws else new))
        if "inverted_rescale" in flaws:
            shrink = np.exp(new - largest) if number else np.ones_like(total)
        if flaws & {"no_rescale", "own_maximum"}:
            shrink = np.ones_like(total)
        of_total = 0 if flaws & {"last_tile_only", "total_of_last_tile"} else shrink
        of_out = 0 if flaws & {"last_tile_only", "out_of_last_tile"} else shrink
        total = total * (1 if "total_not_rescaled" in flaws else of_total) + weights.sum(axis=-1, keepdims=True)
        if "weights_divided" in flaws:
            weights = weights / total
        elif "tile_divided" in flaws:
            weights = weights / weights.sum(axis=-1, keepdims=True)
        elif "tile_softmax" in flaws:  # the same, but where all of a tile's weights are 0
            weights = flawed.softmax(scores)
        out = out * (1 if "out_not_rescaled" in flaws else of_out) + weights @ v
        if flaws & {"divided_each_tile", "divided_twice"}:
            out = out / total
        if "maximum_not_kept" not in flaws:
            largest = new
    return out if flaws & {"not_divided", "divided_each_tile"} else np.asarray(out / total)


def _subtracted(largest: Array, top: Array, flaws: frozenset[str]) -> Array:
    """What is taken off a tile's scores: the largest so far (t_q, 1), with `top` of this tile's."""
    if "no_maximum" in flaws:
        return np.zeros_like(top)
    if "first_maximum" in flaws and np.isfinite(largest).all():
        return largest
    if "shared_maximum" in flaws:
        top = np.full_like(top, top.max())
    return top if "forgotten_maximum" in flaws else np.maximum(largest, top)


def _row(scores: list[float]) -> tuple[list[list[float]], list[list[float]]]:
    """One query of length 1 and keys whose scores, also without a scale, are these."""
    return [[1.0]], [[score] for score in scores]


def _cases() -> tuple[Case, ...]:
    """By hand, then drawn. Scores are below 60 or beyond 750, where exp fails alike in float32 and in float64."""
    by_hand = (
        (*_row([0.0, 1.0]), [[1.0], [2.0]], 1),
        (*_row([1.0, 0.0, 2.0]), [[1.0], [2.0], [4.0]], 2),
        ([[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]], [[1.0], [0.0]], 3),
        (*_row([3.0, 2.0, 1.0, 0.0]), [[1.0], [2.0], [4.0], [8.0]], 2),
        (*_row([-2001.0, -2000.0]), [[1.0], [3.0]], 1),
        (*_row([-100001.0, -100000.0]), [[1.0], [3.0]], 1),
        (*_row([1.0, 1000.0]), [[1.0], [3.0]], 1),
        (*_row([1000.0, 1.0]), [[1.0], [3.0]], 1),
        ([[1.0], [-1.0]], [[1000.0], [1001.0]], [[1.0], [3.0]], 1),
    )
    rng = np.random.default_rng(7)
    rising = np.sort(rng.uniform(-3, 3, 7))
    drawn = (
        (*_row(list(rising)), rng.standard_normal((7, 2)), 3),
        (*_row(list(-rising)), rng.standard_normal((7, 2)), 3),
        *((*(1.5 * rng.standard_normal((t, d)) for t in (t_q, t_kv)), rng.standard_normal((t_kv, d_v)), block)
          for t_q, t_kv, d, d_v, block in ((3, 5, 2, 2, 1), (2, 7, 3, 5, 3), (5, 11, 3, 2, 13), (11, 37, 5, 3, 7))),
    )  # fmt: skip
    long = (*(rng.standard_normal((t, 1)) for t in (256, 2048, 2048)), 16)
    given: tuple[tuple[Any, ...], ...] = (*by_hand, *drawn, (*long, True))
    return tuple(_case(*case) for case in given)


def _case(q: Any, k: Any, v: Any, block: int, *count_tables: bool) -> Case:
    """With arrays in float32."""
    q, k, v = (np.asarray(x, np.float32) for x in (q, k, v))
    return Case((q, k, v, block, *count_tables), (*NAMES, "count_tables") if count_tables else NAMES)


def _nan_from_start(reader: Reader) -> Seen | None:
    """Nothing but NaN for every input (or plain Python's exception): an infinity is made in the very first tile."""
    outcomes = [outcome for outcome in reader.outcomes if not overflow.raised_by_numbers(outcome.failure)]
    compared = outcomes[:-1] if len(reader.outcomes) == len(reader.cases) else outcomes  # the last counts tables
    values = [outcome.value for outcome in compared]
    if values and all(value is not None and value.dtype.kind == "f" and np.isnan(value).all() for value in values):
        return first_failure(reader, tiled_attention)
    return None


STEP = Step(
    key="7",
    stem="step7_tiles",
    page="lab/7-tiles",
    parts=(
        Part(
            name="tiled_attention",
            model=tiled_attention,
            cases=_cases(),
            flaws=FLAWS,
            recognisers=(
                Recogniser("nan_from_start", _nan_from_start),
                *overflow.recognisers(tiled_attention, (*OF_THE_MAXIMUM, "last_dropped"), ("whole_table", "no_scale")),
                any_of(
                    "divided_each_tile", tiled_attention, [partial(tiled_attention, flaws=flaws) for flaws in DIVIDED]
                ),
            ),
            driver="attnbook.lab.held:tiled",
        ),
    ),
)
