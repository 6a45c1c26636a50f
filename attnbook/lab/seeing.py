"""What a recogniser asks of the outcomes, and the evidence that it returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnbook.lab.imitated import agrees
from attnbook.lab.step import Array, Reader, Seen


def which(reader: Reader, told: Sequence[Array]) -> list[bool] | None:
    """Case by case, whether the reader's function returned what is told; None where it did not get through all."""
    if len(reader.outcomes) < len(reader.cases):
        return None
    return [agrees(outcome, np.asarray(array)) for outcome, array in zip(reader.outcomes, told, strict=True)]


def seen(reader: Reader, case: int, told: Array, **details: str) -> Seen:
    """The evidence of a case of the step's own, by its number."""
    return Seen(reader.cases[case], np.asarray(told), reader.outcomes[case], details)
