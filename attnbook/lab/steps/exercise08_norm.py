"""Exercise of chapter 8: LayerNorm, of tokens that lie near 0 and of one that does not."""

from __future__ import annotations

import numpy as np

from attnbook.lab import overflow
from attnbook.lab.imitated import agrees
from attnbook.lab.seeing import seen, which
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step

NAMES = ("x", "gamma", "beta", "eps")
FLAWS = (
    *("over_tokens", "over_everything", "unbiased", "eps_outside", "no_eps", "no_mean", "no_root"),
    *("no_gamma", "no_beta", "beta_scaled"),
)


def model(x: Array, gamma: Array, beta: Array, eps: float, *, flaws: frozenset[str] = frozenset()) -> Array:
    """(x − mean)/√(variance + eps) · gamma + beta, each token by itself: x (t, d), gamma and beta (d,) -> (t, d)."""
    x, gamma, beta = (np.asarray(a, np.float64) for a in (x, gamma, beta))
    axis = 0 if "over_tokens" in flaws else None if "over_everything" in flaws else 1
    n = x.size if axis is None else x.shape[axis]
    centred = x if "no_mean" in flaws else x - x.mean(axis, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (centred**2).sum(axis, keepdims=True) / np.asarray(n - 1 if "unbiased" in flaws else n, np.float64)
        z = centred / _below(variance, eps, flaws)
    gamma = np.ones_like(gamma) if "no_gamma" in flaws else gamma
    beta = np.zeros_like(beta) if "no_beta" in flaws else beta
    return np.asarray((z + beta) * gamma if "beta_scaled" in flaws else z * gamma + beta)


def _below(variance: Array, eps: float, flaws: frozenset[str]) -> Array:
    """What a centred token is divided by."""
    if "no_eps" in flaws:
        eps = 0.0
    if "no_root" in flaws:
        return variance + eps
    return np.asarray(np.sqrt(variance) + eps if "eps_outside" in flaws else np.sqrt(variance + eps))


def _case(x: Array | list[list[float]], gamma: Array | list[float], beta: Array | list[float], eps: float) -> Case:
    return Case((*(np.asarray(a, np.float32) for a in (x, gamma, beta)), eps), NAMES)


def _cases() -> tuple[Case, ...]:
    """Small ones, the second with 3 = √(5 + 4); equal components; prime sizes; and at the end one far from 0."""
    rng = np.random.default_rng(8)
    ones, zeros = [1.0] * 4, [0.0] * 4
    return (
        _case([[1.0, 3.0, 5.0, 7.0]], ones, zeros, 1e-5),
        _case([[1.0, 3.0, 5.0, 7.0]], ones, zeros, 4.0),
        _case([[1.0, 3.0, 5.0, 7.0]], [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 1.0, 1.0], 4.0),
        _case([[2.0, 2.0, 2.0, 2.0]], ones, [0.0, 1.0, 2.0, 3.0], 1e-5),
        _case([[0.0, 2.0], [10.0, 16.0]], [1.0, 1.0], [0.0, 0.0], 1e-5),
        _case(rng.standard_normal((5, 7)) + 1, rng.standard_normal(7), rng.standard_normal(7), 0.01),
        _case([[40000.0, 40001.0, 40002.0, 40003.0]], ones, zeros, 1e-5),
    )


CASES = _cases()


def _one_pass(reader: Reader) -> Seen | None:
    """Right near 0; far from 0, where squares have no room for a variance of 1, wrong or no number."""
    told = [model(*case.arguments) for case in CASES]  # type: ignore[arg-type]
    right = which(reader, told)
    if right is None or not all(right[:-1]) or right[-1] or reader.outcomes[-1].value is None:
        return None
    back = reader.call(np.asarray(CASES[-1].arguments[0]) - np.float32(40000), *CASES[-1].arguments[1:])
    return seen(reader, len(CASES) - 1, told[-1]) if agrees(back, told[-1]) else None


STEP = Step(
    key="chapter-8",
    stem="exercise08_norm",
    page="08-norms",
    folder="exercises",
    parts=(
        Part(
            name="layer_norm",
            model=model,
            cases=CASES,
            flaws=FLAWS,
            recognisers=(Recogniser("one_pass", _one_pass), *overflow.recognisers(model, ("no_eps",), FLAWS)),
        ),
    ),
)
