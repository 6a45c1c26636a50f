"""What do heads written in the lab do? What each reads, and which checks a wrong order of groups passes.

A function is a black box here: an input is shaken, and what moves in the output has read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention, merge_heads, split_heads, three_lines

Array: TypeAlias = NDArray[Any]
Heads: TypeAlias = Callable[..., Any]


def multi_head(q: Array, k: Array, v: Array, n_heads: int) -> Array:
    """The reference, for q (t_q, n_heads · d), k (t_kv, n_heads · d), v (t_kv, n_heads · d_v): (t_q, n_heads · d_v)."""
    return grouped_heads(q, k, v, n_heads, n_heads)


def grouped_heads(q: Array, k: Array, v: Array, n_heads: int, n_kv_heads: int) -> Array:
    """The reference, with n_kv_heads · d and n_kv_heads · d_v components of k and v."""
    cut = (split_heads(x[None], n) for x, n in ((q, n_heads), (k, n_kv_heads), (v, n_kv_heads)))
    out = attention(*cut)
    assert isinstance(out, np.ndarray)
    return np.asarray(merge_heads(out)[0])


def in_turn(grouped: Heads) -> Heads:
    """The same function with its query heads dealt out to the key and value heads in turn, 0 1 0 1: the wrong order."""

    def wrong(q: Array, k: Array, v: Array, n_heads: int, n_kv_heads: int) -> Array:
        # Query heads that take turns, put beside those with which they share, and the outputs put back.
        beside = np.argsort(np.arange(n_heads) % n_kv_heads, kind="stable")
        cut = np.split(q, n_heads, axis=1)
        out = grouped(np.concatenate([cut[h] for h in beside], axis=1), k, v, n_heads, n_kv_heads)
        return np.concatenate([np.split(np.asarray(out), n_heads, axis=1)[h] for h in np.argsort(beside)], axis=1)

    return wrong


def reads(grouped: Heads, arrays: tuple[Array, Array, Array], n_heads: int, n_kv_heads: int) -> Array:
    """Which query head's output moves when a key and value head is shaken: (n_heads, n_kv_heads), in 0 and 1."""
    q, k, v = arrays
    before = np.asarray(grouped(q, k, v, n_heads, n_kv_heads))
    found = np.zeros((n_heads, n_kv_heads))
    for g in range(n_kv_heads):
        shaken = v.copy()
        np.split(shaken, n_kv_heads, axis=1)[g][:] += 1.0  # a view
        moved = np.abs(np.asarray(grouped(q, k, shaken, n_heads, n_kv_heads)) - before).max(axis=0)
        found[:, g] = [part.max() > 1e-9 for part in np.split(moved, n_heads)]
    return found


@experiment
def run(
    multi: Heads = multi_head, grouped: Heads = grouped_heads, n_heads: int = 6, n_kv_heads: int = 3,
    repeats: int = 20, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Both functions on normal numbers in float64. Data: `reads` and `reads_in_turn`, (n_heads, n_kv_heads)."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((t, n_heads * d)) for t, d in ((7, 5), (11, 5), (11, 3)))
    measure("lab.heads_gap", np.abs(multi(q, k, v, n_heads) - multi_head(q, k, v, n_heads)).max())
    measure("lab.heads_one_is_attention", np.allclose(multi(q, k, v, 1), three_lines.attention(q, k, v)))
    _measure_shaken(multi, q, k, v, n_heads)
    k_few, v_few = (x[:, : n_kv_heads * x.shape[1] // n_heads] for x in (k, v))
    right = grouped(q, k_few, v_few, n_heads, n_kv_heads)
    measure("lab.groups_gap", np.abs(right - grouped_heads(q, k_few, v_few, n_heads, n_kv_heads)).max())
    measure("lab.groups_own_are_heads", np.allclose(grouped(q, k, v, n_heads, n_heads), multi(q, k, v, n_heads)))
    wrong = in_turn(grouped)
    found = {name: reads(f, (q, k_few, v_few), n_heads, n_kv_heads)
             for name, f in (("reads", grouped), ("reads_in_turn", wrong))}  # fmt: skip
    formula = np.eye(n_kv_heads)[np.arange(n_heads) // (n_heads // n_kv_heads)]
    measure("lab.groups_reads_as_formula", np.array_equal(found["reads"], formula))
    measure("lab.groups_reads_in_turn_noticed", not np.array_equal(found["reads_in_turn"], formula))
    measure("lab.groups_still_right", int((found["reads_in_turn"] == formula).all(axis=1).sum()))
    _measure_passed(wrong, q, k_few, v_few, n_heads, n_kv_heads, np.asarray(right))
    offs = []
    for _ in range(repeats):
        q, k, v = (rng.standard_normal((16, heads * 8)) for heads in (n_heads, n_kv_heads, n_kv_heads))
        truth = np.asarray(grouped(q, k, v, n_heads, n_kv_heads))
        offs.append(np.linalg.norm(wrong(q, k, v, n_heads, n_kv_heads) - truth) / np.linalg.norm(truth))
    measure_mean("lab.groups_in_turn_off", offs, unit="ratio")
    return found


def _measure_shaken(multi: Heads, q: Array, k: Array, v: Array, n_heads: int) -> None:
    """What moves in the output with one number of the queries, and with one of the values: how many, and where."""
    before = np.asarray(multi(q, k, v, n_heads))
    token, d, d_v = 2, q.shape[1] // n_heads, v.shape[1] // n_heads
    in_one_head, in_one_column = np.zeros(before.shape, bool), np.zeros(before.shape, bool)
    in_one_head[token, d_v : 2 * d_v] = True  # of head 1
    in_one_column[:, d_v + 1] = True
    measure("lab.heads_output_numbers", before.size)
    expected = []
    for name, place, component, there in (("query", 0, d + 1, in_one_head), ("value", 2, d_v + 1, in_one_column)):
        shaken = [x.copy() for x in (q, k, v)]
        shaken[place][token, component] += 1.0
        moved = np.abs(np.asarray(multi(shaken[0], shaken[1], shaken[2], n_heads)) - before) > 1e-12
        measure(f"lab.heads_moved_by_{name}", int(moved.sum()))
        expected.append(np.array_equal(moved, there))
    measure("lab.heads_moved_there", all(expected))


def _measure_passed(wrong: Heads, q: Array, k: Array, v: Array, n_heads: int, n_kv_heads: int, right: Array) -> None:
    """Checks without a second implementation that the wrong order of groups passes."""
    out = np.asarray(wrong(q, k, v, n_heads, n_kv_heads))
    measure("lab.groups_same_shape", out.shape == right.shape and not np.allclose(out, right))
    ones = np.asarray(wrong(q, k, np.ones_like(v), n_heads, n_kv_heads))
    measure("lab.groups_ones", np.allclose(ones, 1.0))
    order = np.arange(len(k))[::-1]
    measure("lab.groups_order_of_keys", np.allclose(wrong(q, k[order], v[order], n_heads, n_kv_heads), out))
