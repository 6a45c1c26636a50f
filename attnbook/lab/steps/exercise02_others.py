"""Exercise of chapter 2: attention of a sequence to itself in which no token sees itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnbook.lab.imitated import agrees
from attnbook.lab.seeing import seen
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step

FLAWS = (
    *("sees_itself", "only_itself", "zero_score", "not_divided_again", "hidden_too_late"),
    *("wrong_axis", "no_scale", "plain_average"),
)


def model(x: Array, *, flaws: frozenset[str] = frozenset()) -> Array:
    """softmax(x xᵀ/√d) x with the diagonal hidden before softmax: x (t, d) -> (t, d)."""
    x = np.asarray(x, np.float64)
    scores = x @ x.T / (1.0 if "no_scale" in flaws else np.sqrt(x.shape[1]))
    if "plain_average" in flaws:
        scores = np.zeros_like(scores)
    own = np.eye(len(x), dtype=bool)
    return np.asarray(_weights(scores, ~own if "only_itself" in flaws else own, flaws) @ x)


def _weights(scores: Array, hidden: Array, flaws: frozenset[str]) -> Array:
    """Of scores (t, t) with booleans of the same shape, hidden as they should be, or as they should not."""
    if flaws & {"hidden_too_late", "not_divided_again"}:
        # Zeroed after softmax. In float32, as the reader has it, the others may have been rounded to 0 by then.
        kept = np.where(hidden, 0, _softmax(scores.astype(np.float32)))
        if "hidden_too_late" in flaws:
            with np.errstate(invalid="ignore"):
                kept = kept / kept.sum(-1, keepdims=True)
        return np.asarray(kept, np.float64)
    if "sees_itself" not in flaws:
        scores = np.where(hidden, 0.0 if "zero_score" in flaws else -np.inf, scores)
    return _softmax(scores, axis=0 if "wrong_axis" in flaws else 1)


def _softmax(scores: Array, axis: int = 1) -> Array:
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def _only_the_past(reader: Reader) -> Seen | None:
    """The strictly lower triangle. Its first row sees nothing, and who knows what the reader's function does there."""
    if len(reader.outcomes) < len(reader.cases):
        return None
    for case, outcome in zip(reader.cases, reader.outcomes, strict=True):
        x = np.asarray(case.arguments[0], np.float64)
        past = np.tril(np.ones((len(x), len(x)), bool), -1)
        told = _softmax(np.where(past, x @ x.T / np.sqrt(x.shape[1]), -np.inf)[1:]) @ x
        if outcome.value is None or outcome.value.shape != x.shape:
            return None
        if not agrees(replace(outcome, value=outcome.value[1:]), told):
            return None
    return seen(reader, 1, model(np.asarray(reader.cases[1].arguments[0])))


def _cases() -> tuple[Case, ...]:
    """Small ones; one whose scores lie so far apart that the other's weight is 0 in float32; prime sizes."""
    rng = np.random.default_rng(2)
    rows = (
        [[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]],
        [[1.0], [2.0], [4.0]],
        [[1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]],
        [[8.0], [-8.0]],
        rng.standard_normal((5, 3)),
        rng.standard_normal((11, 7)),
    )
    return tuple(Case((np.asarray(x, np.float32),), ("x",)) for x in rows)


STEP = Step(
    key="chapter-2",
    stem="exercise02_others",
    page="02-three-names",
    folder="exercises",
    parts=(
        Part(
            name="attend_to_others",
            model=model,
            cases=_cases(),
            flaws=FLAWS,
            recognisers=(Recogniser("only_the_past", _only_the_past),),
        ),
    ),
)
