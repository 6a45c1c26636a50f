"""A recogniser for attention whose scores have another factor than 1/√d, whichever it is: it says the factor.

With one-hot queries and keys and the identity as values, the output is the weights, and the logarithm of the ratio of
two of them is the difference of their scores.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnbook.lab.step import Array, Case, Model, Reader, Recogniser, Seen

WIDTHS = (4, 9, 16)
"""Of q and k: the square roots are whole, so that a factor is easy to read."""


def other_scale(model: Model, names: tuple[str, str, str] = ("q", "k", "v")) -> Recogniser:
    """Recognises a function (q, k, v) that is right but for its scores' factor; `model` has the right answer."""
    return Recogniser("other_scale", _seen_by(model, names), last=True)


def _seen_by(model: Model, names: tuple[str, str, str]) -> Callable[[Reader], Seen | None]:
    def see(reader: Reader) -> Seen | None:
        factors = []
        for d in WIDTHS:
            q, k, v = _arguments(d)
            # A factor also grows with the query, and does not care which key or which component stands first.
            tried = ((q, k), (2 * q, k), (q, k[::-1]), (q[:, ::-1], k[:, ::-1]))
            found = [_log_ratio(reader, *pair, v) for pair in tried]
            if not np.allclose(found, found[0] * np.array([1, 2, -1, 1]), rtol=1e-3, atol=1e-5):  # nor is nan
                return None
            factors.append(found[0])
        if np.allclose(factors, 0, atol=1e-4):
            return None  # scores that change nothing are no matter of scale
        wanted = [d**-0.5 for d in WIDTHS]
        if np.allclose(factors, wanted, rtol=1e-3):
            return None
        arguments = _arguments(WIDTHS[0])
        case = Case(arguments, names)
        return Seen(
            case,
            np.asarray(model(*arguments)),
            reader.call(*arguments),
            {
                "widths": ", ".join(map(str, WIDTHS)),
                "factors": ", ".join(f"{factor:.4g}" for factor in factors),
                "wanted": ", ".join(f"{factor:.4g}" for factor in wanted),
            },
        )

    return see


def _log_ratio(reader: Reader, q: Array, k: Array, v: Array) -> float:
    """Natural logarithm of the first weight over the second; nan if the function returns no weights."""
    value = reader.call(np.ascontiguousarray(q), np.ascontiguousarray(k), v).value
    if value is None or value.shape != (1, 2) or value.dtype.kind != "f" or not (value > 0).all():
        return float("nan")
    return float(np.log(value[0, 0] / value[0, 1])) if abs(value.sum() - 1) < 1e-5 else float("nan")


def _arguments(d: int) -> tuple[Array, Array, Array]:
    """One query and two keys, of which the first has the score 1 before any factor, and the second 0."""
    q = np.zeros((1, d), np.float32)
    q[0, 0] = 1
    return q, np.concatenate([q, np.zeros((1, d), np.float32)]), np.eye(2, dtype=np.float32)
