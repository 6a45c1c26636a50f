"""Exercise of chapter 9d: the mask of a sliding window."""

from __future__ import annotations

import numpy as np

from attnbook.lab.seeing import seen
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step

NAMES = ("t_q", "t_kv", "window")
FLAWS = (
    *("one_more", "one_fewer", "top_left", "inverted", "both_sides", "only_the_future", "no_window", "not_causal"),
    *("outside", "not_itself"),
)


def model(t_q: int, t_kv: int, window: int, *, flaws: frozenset[str] = frozenset()) -> Array:
    """Booleans (t_q, t_kv): may query i see key j, one of the last `window` up to i + t_kv − t_q?"""
    shift = 0 if "top_left" in flaws else t_kv - t_q
    back = np.arange(t_q)[:, None] + shift - np.arange(t_kv)[None, :]  # how far the key lies before the query
    if "only_the_future" in flaws:
        back = -back
    window += ("one_more" in flaws) - ("one_fewer" in flaws)
    past, near = back >= (1 if "not_itself" in flaws else 0), back < window
    if "both_sides" in flaws:
        seen = abs(back) < window
    elif "no_window" in flaws:
        seen = past
    elif "not_causal" in flaws:
        seen = near
    elif "outside" in flaws:
        seen = past & ~near
    else:
        seen = past & near
    return np.asarray(~seen if "inverted" in flaws else seen)


def _added(reader: Reader) -> Seen | None:
    """A mask to be added to the scores: 0 and −inf, or a number far below 0."""
    values = [outcome.value for outcome in reader.outcomes]
    if len(values) < len(reader.cases):
        return None
    for value in values:
        if value is None or value.dtype.kind != "f" or not ((value == 0) | (value < -1000)).all():
            return None
    hidden = next((i for i, value in enumerate(values) if value is not None and (value < 0).any()), None)
    return None if hidden is None else seen(reader, hidden, model(*reader.cases[hidden].arguments))  # type: ignore[arg-type]


def _cases() -> tuple[Case, ...]:
    """As many queries as keys; fewer, as when a cache is read; more, where the first see nothing; prime sizes."""
    sizes = ((2, 2, 1), (3, 3, 2), (4, 4, 3), (1, 4, 2), (2, 5, 2), (3, 3, 7), (4, 2, 2), (7, 13, 5), (11, 11, 3))
    return tuple(Case(case, NAMES) for case in sizes)


STEP = Step(
    key="chapter-9d",
    stem="exercise09_window",
    page="09d-window",
    folder="exercises",
    parts=(
        Part(
            name="window_mask",
            model=model,
            cases=_cases(),
            flaws=FLAWS,
            recognisers=(Recogniser("added", _added),),
        ),
    ),
)
