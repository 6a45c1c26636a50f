"""Causal attention of grouped heads in NumPy and float64, with mistakes on demand.

What a head sees and how it hides the rest is `flawed_mask`'s; here are the heads: which keys a query's head reads, and
in which order the outputs stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from attnbook.lab.flawed_mask import causal_attention
from attnbook.lab.step import Argument, Array, Case, Outcome, Reader, Recogniser, Seen

SHARED: Final = ("groups_in_turn", "first_kv_head", "kv_averaged", "groups_reversed")
"""Flaws of `reads` and, for `kv_averaged`, of what is read."""

OWN: Final = (*SHARED, "scale_by_model", "heads_in_turn")
"""All flaws that are not a single head's."""


def reads(n_heads: int, n_kv_heads: int, flaws: frozenset[str] = frozenset()) -> Array:
    """The head of keys and values that each query head reads, (n_heads,): neighbours share one."""
    head = np.arange(n_heads)
    if "groups_in_turn" in flaws:
        return head % n_kv_heads
    if "first_kv_head" in flaws:
        return head * 0
    found = head // (n_heads // n_kv_heads)
    return found[::-1] if "groups_reversed" in flaws else found


def attention(q: Array, k: Array, v: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
    """Causal attention of q (n_heads, t_q, d) to k (n_kv_heads, t_kv, d), v (n_kv_heads, t_kv, d_v).

    Returns (n_heads, t_q, d_v).

    flaws: `OWN`, and those of `flawed_mask.causal_attention`. scale_by_model divides by √(n_heads · d); heads_in_turn
    gives the outputs of first heads of all groups first, then of the second ones.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    n, n_kv = len(q), len(k)
    if "kv_averaged" in flaws:
        k, v = (np.broadcast_to(x.mean(axis=0), x.shape) for x in (k, v))
    if "scale_by_model" in flaws:
        q = q / np.sqrt(n)
    one = flaws - set(OWN)
    out = np.stack([causal_attention(q[h], k[i], v[i], flaws=one) for h, i in enumerate(reads(n, n_kv, flaws))])
    if "heads_in_turn" in flaws:
        out = out.reshape(n_kv, n // n_kv, *out.shape[1:]).swapaxes(0, 1).reshape(out.shape)
    return out


class _OneHead:
    """A reader's function of many heads as one of a single head: its cases with one, without the axis of heads."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        pairs = [(c, o) for c, o in zip(reader.cases, reader.outcomes, strict=False) if _heads(c) == (1, 1)]
        self.cases: Sequence[Case] = [
            replace(case, arguments=tuple(np.asarray(a)[0] for a in case.arguments)) for case, _ in pairs
        ]
        self.outcomes: Sequence[Outcome] = [_first_head(outcome) for _, outcome in pairs]

    def call(self, *arguments: Argument) -> Outcome:
        """Call it with one head."""
        return _first_head(self._reader.call(*(np.asarray(a)[None] for a in arguments)))


def of_one_head(recogniser: Recogniser) -> Recogniser:
    """A recogniser of a single head's mistake for a function of many: it is shown the cases that have one head."""

    def see(reader: Reader) -> Seen | None:
        shown = recogniser.see(_OneHead(reader))
        if shown is None:
            return None
        case = replace(shown.case, arguments=tuple(np.asarray(a)[None] for a in shown.case.arguments))
        value = shown.outcome.value
        outcome = shown.outcome if value is None else replace(shown.outcome, value=value[None])
        return Seen(case, shown.expected[None], outcome, shown.details)

    return Recogniser(recogniser.name, see)


def _heads(case: Case) -> tuple[int, int]:
    q, k = (np.asarray(a) for a in case.arguments[:2])
    return len(q), len(k)


def _first_head(outcome: Outcome) -> Outcome:
    value = outcome.value
    return outcome if value is None or value.ndim != 3 or len(value) != 1 else replace(outcome, value=value[0])
