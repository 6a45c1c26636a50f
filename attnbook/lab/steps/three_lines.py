"""Step 1: the three lines, attention of one head without a mask."""

from __future__ import annotations

import numpy as np

from attnbook.lab import flawed
from attnbook.lab.other_scale import other_scale
from attnbook.lab.step import Case, Part, Step

NAMES = ("q", "k", "v")


def _cases() -> tuple[Case, ...]:
    """From one query and one key to odd sizes; every flaw shows in one that is small enough to follow by hand."""
    rng = np.random.default_rng(1)
    by_hand = (
        ([[1.0]], [[2.0]], [[3.0]]),
        ([[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]], [[1.0], [0.0]]),
        ([[2.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0], [2.0], [4.0]]),
    )
    drawn = (tuple(rng.standard_normal(shape) for shape in ((t_q, d), (t_kv, d), (t_kv, d_v)))
             for t_q, t_kv, d, d_v in ((2, 3, 5, 5), (5, 7, 3, 2), (11, 13, 17, 19)))  # fmt: skip
    return tuple(Case(tuple(np.asarray(x, np.float32) for x in case), NAMES) for case in (*by_hand, *drawn))


STEP = Step(
    key="1",
    stem="step1_three_lines",
    page="lab/1-three-lines",
    parts=(
        Part(
            name="attention",
            model=flawed.attention,
            cases=_cases(),
            recognisers=(other_scale(flawed.attention),),
            flaws=(
                *("wrong_axis", "no_scale", "scale_by_d", "scale_up", "scale_by_keys", "scale_by_values"),
                *("no_softmax", "no_sum", "whole_softmax", "keys_for_values", "no_values"),
            ),
        ),
    ),
)
