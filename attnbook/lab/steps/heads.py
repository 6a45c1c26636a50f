"""Step 6: heads cut out, attended to one by one and joined again, then heads that share their keys and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from attnbook.lab import flawed
from attnbook.lab.imitated import agrees, first_failure
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step

Heads: TypeAlias = tuple[int, ...]

COMMON: Final = (
    *("one_head", "scale_by_model", "no_scale", "scale_by_d", "wrong_axis", "softmax_over_heads"),
    *("split_reshape", "merge_reshape", "split_in_turn", "merge_in_turn", "merge_reversed"),
    *("heads_averaged", "heads_summed", "one_softmax"),
)
SHARED: Final = ("groups_in_turn", "first_kv_head", "kv_averaged", "groups_reversed")


def multi_head(q: Array, k: Array, v: Array, n_heads: int, *, flaws: frozenset[str] = frozenset()) -> Array:
    """Of q (t_q, n_heads · d), k (t_kv, n_heads · d), v (t_kv, n_heads · d_v): (t_q, n_heads · d_v).

    Flaws: `COMMON`. heads_averaged and heads_summed give (t_q, d_v).
    """
    q, k, v = (_split(x, n_heads, flaws) for x in (q, k, v))
    return _mixed(q, k, v, flaws)


def grouped_heads(
    q: Array, k: Array, v: Array, n_heads: int, n_kv_heads: int, *, flaws: frozenset[str] = frozenset()
) -> Array:
    """The same with k (t_kv, n_kv_heads · d) and v (t_kv, n_kv_heads · d_v). Flaws: `COMMON` and `SHARED`."""
    k, v = (_split(x, n_kv_heads, flaws) for x in (k, v))
    if "kv_averaged" in flaws:
        k, v = (np.broadcast_to(x.mean(axis=0), x.shape) for x in (k, v))
    head = np.arange(n_heads)
    reads = head // (n_heads // n_kv_heads)
    if "groups_in_turn" in flaws:
        reads = head % n_kv_heads
    elif "first_kv_head" in flaws:
        reads = head * 0
    elif "groups_of_kv_heads" in flaws:
        reads = head // n_kv_heads
    elif "groups_reversed" in flaws:
        reads = reads[::-1]
    return _mixed(_split(q, n_heads, flaws), k[reads], v[reads], flaws)


def _split(x: Array, n_heads: int, flaws: frozenset[str]) -> Array:
    """(t, n_heads · d) -> (n_heads, t, d) in float64."""
    x = np.asarray(x, np.float64)
    if "split_reshape" in flaws:
        return x.reshape(n_heads, len(x), -1)
    if "split_in_turn" in flaws:
        return x.reshape(len(x), -1, n_heads).transpose(2, 0, 1)
    return x.reshape(len(x), n_heads, -1).transpose(1, 0, 2)


def _mixed(q: Array, k: Array, v: Array, flaws: frozenset[str]) -> Array:
    """From q (h, t_q, d), k (h, t_kv, d), v (h, t_kv, d_v) to (t_q, h · d_v)."""
    by_model = "scale_by_model" in flaws or "one_head" in flaws
    scale = 1 / np.sqrt(q.shape[0] * q.shape[-1]) if by_model else flawed.scale(q, k, v, flaws)
    scores = q @ k.transpose(0, 2, 1) * scale
    if "one_softmax" in flaws or "one_head" in flaws:
        scores = scores.sum(axis=0, keepdims=True)
    over_heads = "softmax_over_heads" in flaws
    table = flawed.softmax(scores, axis=0) if over_heads else flawed.weights(scores, flaws)
    return _merge(table @ v, flaws)


def _merge(out: Array, flaws: frozenset[str]) -> Array:
    """(h, t, d) -> (t, h · d)."""
    if "heads_averaged" in flaws:
        return np.asarray(out.mean(axis=0))
    if "heads_summed" in flaws:
        return np.asarray(out.sum(axis=0))
    t = out.shape[1]
    if "merge_reshape" in flaws:
        return out.reshape(t, -1)
    if "merge_in_turn" in flaws:
        return out.transpose(1, 2, 0).reshape(t, -1)
    if "merge_reversed" in flaws:
        out = out[::-1]
    return out.transpose(1, 0, 2).reshape(t, -1)


def _within_tokens(q: Array, k: Array, v: Array, n_heads: int, n_kv_heads: int = 0) -> Array:
    """What comes out where axes are not swapped: the heads of a token attend to each other. As many q as k."""
    kv_heads = n_kv_heads or n_heads
    cut = (np.asarray(x, np.float64).reshape(len(x), heads, -1)
           for x, heads in ((q, n_heads), (k, kv_heads), (v, kv_heads)))  # fmt: skip
    q, k, v = (np.repeat(x, n_heads // x.shape[1], axis=1) for x in cut)  # (t, n_heads, d)
    table = flawed.softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
    return (table @ v).reshape(len(q), -1)


def _tokens_apart(truth: Callable[..., Array], reader: Reader) -> Seen | None:
    """Heads of one token attend to each other; where there are more keys than queries, shapes do not fit."""
    return _shown(reader, truth, _within_tokens, lambda q, k, *others: len(q) == len(k))


def _groups_of_kv_heads(reader: Reader) -> Seen | None:
    """Groups of n_kv_heads, not of n_heads // n_kv_heads: an exception where that leads past the last head."""

    def wrong(*arguments: Any) -> Array:
        return grouped_heads(*arguments, flaws=frozenset({"groups_of_kv_heads"}))

    def fits(q: Array, k: Array, v: Array, n_heads: int, n_kv_heads: int) -> bool:
        return (n_heads - 1) // n_kv_heads < n_kv_heads

    return _shown(reader, grouped_heads, wrong, fits)


def _shown(
    reader: Reader, truth: Callable[..., Array], wrong: Callable[..., Array], fits: Callable[..., bool]
) -> Seen | None:
    """The first failure of a function that does what `wrong` does in every case that fits; elsewhere it may raise."""
    if len(reader.outcomes) < len(reader.cases):
        return None
    pairs = zip(reader.cases, reader.outcomes, strict=True)
    tried = [(case.arguments, outcome) for case, outcome in pairs if fits(*case.arguments)]
    if all(agrees(outcome, wrong(*arguments)) for arguments, outcome in tried):
        return first_failure(reader, truth)
    return None


def _cases(names: tuple[str, ...], by_hand: tuple[tuple[Heads, tuple[list[list[float]], ...]], ...],
           drawn: tuple[tuple[Heads, tuple[int, int, int, int]], ...], draw: Callable[[tuple[int, int]], Array],
           ) -> tuple[Case, ...]:  # fmt: skip
    """Those given, then normal numbers for (heads, (t_q, t_kv, d, d_v)); heads are those of q and, if fewer, of k."""
    found = [_case(names, heads, *arrays) for heads, arrays in by_hand]
    for heads, (t_q, t_kv, d, d_v) in drawn:
        shapes = ((t_q, heads[0] * d), (t_kv, heads[-1] * d), (t_kv, heads[-1] * d_v))
        found.append(_case(names, heads, *(draw(shape) for shape in shapes)))
    return tuple(found)


def _case(names: tuple[str, ...], heads: Heads, *arrays: Any) -> Case:
    """With arrays in float32."""
    return Case((*(np.asarray(x, np.float32) for x in arrays), *heads), names)


_rng = np.random.default_rng(6)

STEP = Step(
    key="6",
    stem="step6_heads",
    page="lab/6-heads",
    parts=(
        Part(
            name="multi_head",
            model=multi_head,
            recognisers=(Recogniser("within_tokens", partial(_tokens_apart, multi_head)),),
            flaws=COMMON,
            cases=_cases(
                ("q", "k", "v", "n_heads"),
                (
                    ((2,), ([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 10.0], [2.0, 20.0]])),
                    ((1,), ([[2.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0], [2.0], [4.0]])),
                    (
                        (2,),
                        (
                            [[2.0, 0.0, 0.0, 2.0], [0.0, 2.0, 2.0, 2.0]],
                            [[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 2.0]],
                            [[1.0, 2.0, 10.0, 20.0], [3.0, 5.0, 40.0, 30.0]],
                        ),
                    ),
                ),
                (((2,), (3, 3, 2, 2)), ((3,), (2, 5, 3, 2)), ((5,), (7, 11, 3, 2)), ((7,), (13, 17, 5, 3))),
                _rng.standard_normal,
            ),
        ),
        Part(
            name="grouped_heads",
            model=grouped_heads,
            recognisers=(
                Recogniser("within_tokens", partial(_tokens_apart, grouped_heads)),
                Recogniser("groups_of_kv_heads", _groups_of_kv_heads),
            ),
            flaws=(*SHARED, *COMMON),
            cases=_cases(
                ("q", "k", "v", "n_heads", "n_kv_heads"),
                (
                    ((4, 2), ([[1.0, 2.0, 0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 10.0], [2.0, 20.0]])),
                    ((2, 1), ([[2.0, 0.0, 0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]])),
                    (
                        (4, 2),
                        (
                            [[2.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.0, 0.0], [0.0, 2.0, 2.0, 2.0, 0.0, 2.0, 2.0, 0.0]],
                            [[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 2.0]],
                            [[1.0, 2.0, 10.0, 20.0], [3.0, 5.0, 40.0, 30.0]],
                        ),
                    ),
                ),
                (
                    *(((2, 2), (3, 3, 2, 2)), ((6, 2), (2, 5, 3, 2)), ((6, 3), (5, 3, 2, 3))),
                    *(((5, 1), (7, 11, 3, 2)), ((14, 7), (11, 13, 3, 2))),
                ),
                _rng.standard_normal,
            ),
        ),
    ),
)
