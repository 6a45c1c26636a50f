"""Exercise of chapter 9c: the weights of the k experts that each token goes to."""

from __future__ import annotations

import numpy as np

from attnbook.lab.step import Array, Case, Part, Step

FLAWS = (
    *("not_divided_again", "all_experts", "down_the_tokens", "of_the_whole_table", "smallest", "one_fewer", "one_more"),
    *("zeros_share", "equal_shares", "no_softmax", "column_shares"),
)


def model(logits: Array, k: int, *, flaws: frozenset[str] = frozenset()) -> Array:
    """Softmax over the k largest logits of each token, 0 for the other experts: logits (t, e) -> (t, e)."""
    z = np.asarray(logits, np.float64)
    chosen = np.ones_like(z, bool) if "all_experts" in flaws else _chosen(z, k, flaws)
    if "equal_shares" in flaws:
        return np.asarray(chosen / k)
    if "no_softmax" in flaws:
        return np.where(chosen, z, 0.0)
    if "zeros_share" in flaws:
        return _softmax(np.where(chosen, z, 0.0))
    if "not_divided_again" in flaws:
        return np.where(chosen, _softmax(z), 0.0)
    e = np.where(chosen, np.exp(z - z.max()), 0.0)
    total = e.sum(0 if "column_shares" in flaws else 1, keepdims=True)
    with np.errstate(invalid="ignore"):  # an expert or a token without the other: 0/0
        return np.asarray(e / total)


def _chosen(z: Array, k: int, flaws: frozenset[str]) -> Array:
    """Which experts a token goes to: booleans (t, e)."""
    k += ("one_more" in flaws) - ("one_fewer" in flaws)
    order = z if "smallest" in flaws else -z
    if "of_the_whole_table" in flaws:
        return np.asarray(order <= np.sort(order, axis=None)[k - 1])
    axis = 0 if "down_the_tokens" in flaws else 1
    return np.asarray(order.argsort(axis).argsort(axis) < k)


def _softmax(z: Array) -> Array:
    e = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def _cases() -> tuple[Case, ...]:
    """Two tokens; prime sizes. No two logits of a token are equal, and k is more than 1, less than e, at most t."""
    rng = np.random.default_rng(9)
    some = (
        ([[1.0, 2.0, 0.0], [3.0, 0.0, 1.0]], 2),
        ([[1.0, -1.0, 3.0, 2.0], [0.0, 3.0, -2.0, 1.0]], 2),
        (rng.standard_normal((5, 7)), 3),
        (rng.standard_normal((13, 11)) * 2, 2),
    )
    return tuple(Case((np.asarray(z, np.float32), k), ("logits", "k")) for z, k in some)


STEP = Step(
    key="chapter-9c",
    stem="exercise09_route",
    page="09c-experts",
    folder="exercises",
    parts=(Part(name="route", model=model, cases=_cases(), flaws=FLAWS),),
)
