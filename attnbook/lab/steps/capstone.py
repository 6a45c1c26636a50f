"""The capstone: the reader's own attention of grouped heads, tried by itself and then in every layer of SmolLM2."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from attnbook.lab import flawed_mask
from attnbook.lab.flawed_grouped import OWN, attention, of_one_head
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step
from attnbook.lab.steps.causal_mask import STEP as CAUSAL_MASK

NAMES: Final = ("q", "k", "v")

PROMPT: Final = "Attention is a weighted average. Each token looks at"
TOKENS: Final = (41319, 314, 253, 23436, 3049, 30, 3768, 9624, 5117, 418)
"""`PROMPT` as SmolLM2's tokens, so that a check need not open the model to say what it asked."""

NEW: Final = 8

LOUD: Final = 8.0
"""A loud score is its square, 64: enough to win over what is seen by far, and its exponential is a float32."""


def _cases() -> tuple[Case, ...]:
    """From one head to odd numbers of them; as much keys as queries, more, and one query as in generation."""
    rng = np.random.default_rng(8)
    by_hand = (
        ([[[0.0], [0.0]]], [[[1.0], [2.0]]], [[[2.0], [6.0]]]),
        ([[[0.0]]], [[[1.0], [2.0], [3.0]]], [[[1.0], [2.0], [6.0]]]),
        ([[[0.0], [0.0]]], [[[1.0], [2.0], [3.0], [4.0]]], [[[1.0], [3.0], [8.0], [20.0]]]),
        ([[[0.0]]] * 4, [[[1.0]], [[1.0]]], [[[1.0]], [[2.0]]]),
        ([[[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 0.0, 0.0]]], [[[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]],
         [[[2.0, 0.0, 1.0, 1.0], [6.0, 1.0, 0.0, 1.0]]]),
        ([[[1.0], [0.0]], [[0.0], [1.0]], [[2.0], [1.0]], [[1.0], [3.0]]], [[[1.0], [0.0]], [[0.0], [2.0]]],
         [[[1.0], [2.0]], [[10.0], [40.0]]]),
        ([[[LOUD], [LOUD]]], [[[0.0], [LOUD]]], [[[2.0], [6.0]]]),
        ([[[LOUD], [LOUD]]], [[[-LOUD], [0.0]]], [[[2.0], [6.0]]]),  # what is seen is far below what is hidden
    )  # fmt: skip
    sizes = ((1, 1, 5, 5, 3), (4, 2, 3, 3, 2), (6, 2, 1, 5, 3), (6, 3, 5, 7, 2), (5, 1, 3, 11, 7), (9, 3, 11, 13, 5))
    drawn = (tuple(rng.standard_normal(shape) for shape in ((n, t_q, d), (n_kv, t_kv, d), (n_kv, t_kv, d)))
             for n, n_kv, t_q, t_kv, d in sizes)  # fmt: skip
    return tuple(Case(tuple(np.asarray(x, np.float32) for x in case), NAMES) for case in (*by_hand, *drawn))


def nothing_apart(prompt: Array, n: int, *, flaws: frozenset[str] = frozenset()) -> Array:
    """What `attnbook.lab.inside.write` returns where the reader's attention does what ours does, (2, n)."""
    return np.zeros((2, n), np.int64)


def _inside(name: str) -> Recogniser:
    """The mistake `name`: who parts from ours, and when."""

    def see(reader: Reader) -> Seen | None:
        outcome = reader.outcomes[0]
        told = outcome.told
        if outcome.value is None or _kind(outcome.value[0], told.get("reading")) != name:
            return None
        ours, yours = (np.array(told[key].split(), np.int64) for key in ("our_tokens", "your_tokens"))
        return Seen(reader.cases[0], ours, replace(outcome, value=yours), told)

    return Recogniser(name, see)


def _kind(tokens_apart: Array, reading: str | None) -> str:
    """Which of the three it is: while the prompt is read, only later, or in no token at all."""
    if not tokens_apart.any() or reading is None:
        return "inside_logits"
    return "inside_reading" if reading == "0" else "inside_writing"


STEP = Step(
    key="capstone",
    stem="capstone",
    page="lab/capstone",
    parts=(
        Part(
            name="attention",
            model=attention,
            cases=_cases(),
            recognisers=tuple(
                of_one_head(recogniser)
                for recogniser in CAUSAL_MASK.parts[0].recognisers
                if recogniser.name != "no_maximum"  # no score here is so large that it would matter
            ),
            flaws=(
                *OWN,
                *(flaw for flaw in flawed_mask.PAIRS if flaw not in flawed_mask.LEAVES_EMPTY),
                *("mask_after", "zero_scores", "zero_times_inf"),
                *("wrong_axis", "no_scale", "scale_by_d", "scale_up", "whole_softmax", "no_sum", "keys_for_values"),
            ),
        ),
        Part(
            name="attention",
            key="inside",
            model=nothing_apart,
            cases=(Case((np.array(TOKENS), NEW), ("prompt", "n")),),
            recognisers=tuple(_inside(name) for name in ("inside_reading", "inside_writing", "inside_logits")),
            driver="attnbook.lab.inside:write",
            seconds=30.0,
        ),
    ),
)
