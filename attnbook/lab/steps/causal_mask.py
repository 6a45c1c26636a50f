"""Step 4: the causal mask, aligned at the bottom right."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import numpy as np

from attnbook.lab import flawed_mask
from attnbook.lab.flawed_mask import causal_attention
from attnbook.lab.imitated import any_of, first_failure, imitates
from attnbook.lab.step import Case, Outcome, Part, Reader, Recogniser, Seen, Step

NAMES: Final = ("q", "k", "v")
LOUD: Final = 2e4
"""A score so large that −1e4 hides nothing from it, and that its exponential is infinite in float64, too."""


def _cases() -> tuple[Case, ...]:
    """From two tokens with equal scores to odd sizes; between them, scores that only a good mask survives."""
    rng = np.random.default_rng(4)
    half = math.sqrt(LOUD / 2)  # loud scores are 2 · half · half
    by_hand = (
        ([[0.0], [0.0]], [[1.0], [2.0]], [[2.0], [6.0]]),
        ([[0.0]], [[1.0], [2.0], [3.0]], [[1.0], [2.0], [6.0]]),
        ([[0.0], [0.0], [0.0]], [[1.0], [2.0], [3.0]], [[1.0], [3.0], [8.0]]),
        ([[0.0], [0.0]], [[1.0], [2.0], [3.0], [4.0]], [[1.0], [3.0], [8.0], [20.0]]),
        ([[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 0.0, 0.0]], [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]], [[2.0], [6.0]]),
        ([[half], [half]], [[0.0], [2 * half]], [[2.0], [6.0]]),  # row 0: 0 is seen, a loud score hidden
        ([[half], [half]], [[-2 * half], [0.0]], [[2.0], [6.0]]),  # row 0: a very low score is seen, 0 hidden
        ([[0.0], [half]], [[2 * half], [0.0]], [[2.0], [6.0]]),  # row 1: a loud score, far above all of row 0
    )
    drawn = (tuple(rng.standard_normal(shape) for shape in ((t_q, d), (t_kv, d), (t_kv, d_v)))
             for t_q, t_kv, d, d_v in ((3, 5, 2, 2), (5, 5, 3, 2), (11, 17, 13, 19)))  # fmt: skip
    return tuple(Case(tuple(np.asarray(x, np.float32) for x in case), NAMES) for case in (*by_hand, *drawn))


def _two_scores(own: float, hidden: float) -> Case:
    """Two tokens; the first has those scores, its own and the hidden one, and returns its weights."""
    arrays = ([[1.0], [0.0]], [[own], [hidden]], np.eye(2))
    return Case(tuple(np.asarray(x, np.float32) for x in arrays), NAMES)


def _odds(outcome: Outcome) -> float | None:
    """Natural log of the hidden weight over the seen one, in the first row; ±∞ where one vanishes."""
    value = outcome.value
    if value is None or value.shape != (2, 2) or not np.isfinite(value).all() or np.iscomplexobj(value):
        return None
    own, hidden = (float(x) for x in value[0])
    if own < 0 or hidden < 0 or own + hidden == 0:
        return None
    tiny = 1e-30  # what is below could be a number that lost its last digits
    return math.inf if own < tiny else -math.inf if hidden < tiny else math.log(hidden / own)


def _weak(reader: Reader) -> Seen | None:
    """Lower the seen score until the hidden one gets through: where both weigh the same lies the value of the mask."""
    low, high, depth = 0.0, math.inf, 0.0
    for _ in range(40):
        case = _two_scores(-depth, 0.0)
        outcome = reader.call(*case.arguments)
        odds = _odds(outcome)
        if odds is None or depth > 4 * LOUD:
            return None
        if math.isfinite(odds):
            break
        low, high = (depth, high) if odds < 0 else (low, depth)
        depth = max(64.0, 2 * depth) if math.isinf(high) else (low + high) / 2
    else:
        return None
    value = odds - depth
    if value > -0.5:  # nothing is hidden at all, or put to 0: mistakes of their own
        return None
    for added in (False, True):
        if imitates(reader, partial(causal_attention, hidden=value, added=added)):
            case = _two_scores(round(value), 0.0)  # both weigh about the same
            outcome = reader.call(*case.arguments)
            expected = causal_attention(*(np.asarray(x) for x in case.arguments))
            return Seen(case, expected, outcome, {"value": f"{float(f'{value:.3g}'):.6g}"})
    return None


def _renormalised(reader: Reader) -> Seen | None:
    """Right until a hidden score is loud; there 0/0, or what a function makes of it."""
    wrong = frozenset({"renormalised"})
    makes = (
        partial(causal_attention, flaws=wrong),
        lambda *case: np.nan_to_num(causal_attention(*case, flaws=wrong)),
    )
    return first_failure(reader, causal_attention) if any(imitates(reader, model) for model in makes) else None


def _recognisers() -> tuple[Recogniser, ...]:
    empty = tuple(
        any_of(
            name,
            causal_attention,
            [partial(causal_attention, flaws=frozenset({name}), empty=e) for e in ("nan", "zero", "mean", "all")],
        )
        for name in flawed_mask.LEAVES_EMPTY
    )
    # exp times a mask of 0 and 1 masks before the division, as it should, but exp may be infinite: ∞ · 0.
    unmaximised = partial(causal_attention, flaws=frozenset({"renormalised", "no_maximum"}))
    return (
        *empty,
        any_of("no_maximum", causal_attention, [unmaximised]),
        Recogniser("renormalised", _renormalised),
        Recogniser("weak_mask", _weak),
    )


STEP = Step(
    key="4",
    stem="step4_causal_mask",
    page="lab/4-causal-mask",
    parts=(
        Part(
            name="causal_attention",
            model=causal_attention,
            cases=_cases(),
            recognisers=_recognisers(),
            flaws=(
                *flawed_mask.PAIRS,
                *flawed_mask.HIDING,
                *("wrong_axis", "no_scale", "scale_by_d", "scale_up", "whole_softmax"),
            ),
        ),
    ),
)
