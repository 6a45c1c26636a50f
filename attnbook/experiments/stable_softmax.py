"""Is softmax with the maximum subtracted the same function as the formula, and what does the subtraction cost?

Three answers: where the formula overflows; in exact arithmetic; and in floating point where both work, each compared
with 40 digits of `decimal`.
"""

from __future__ import annotations

import decimal
import random
from fractions import Fraction

import torch
from torch import Tensor

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import naive_softmax, softmax


@experiment
def run(rows: int = 40, n: int = 64, spread: float = 8.0, seed: int = 3) -> dict[str, object]:
    """Rows of n normal scores with standard deviation `spread`, in float32.

    Data: `naive` and `stable`, the error of every weight in units of the last place's half-width, (rows, n).
    """
    _measure_overflow()
    measure("softmax.same_in_exact_arithmetic", all(same_exactly(seed) for seed in range(50)))
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(rows, n, generator=generator) * spread
    exact = [exact_softmax(row) for row in score.tolist()]
    naive, stable = (relative_error(f(score), exact) for f in (naive_softmax, softmax))
    measure_mean("softmax.naive_error", naive.mean(1))
    measure_mean("softmax.stable_error", stable.mean(1))
    heavy = torch.tensor([[float(w) > 0.01 for w in row] for row in exact])
    measure("softmax.stable_error_heavy", stable[heavy].mean(), spread=float(stable[heavy].std() / heavy.sum() ** 0.5))
    measure("softmax.naive_more_accurate", bool(naive.mean() < stable.mean()))
    measure("softmax.largest_difference", (naive_softmax(score) - softmax(score)).abs().max())
    _measure_shift(score)
    return {"naive": naive, "stable": stable}


def same_exactly(seed: int) -> bool:
    """Is b^x / Σ b^x equal to b^(x−m) / Σ b^(x−m), as fractions? For a random rational base b > 1 and whole scores."""
    rng = random.Random(seed)
    base = 1 + Fraction(rng.randint(1, 1000), rng.randint(1, 1000))
    x = [rng.randint(-30, 1000) for _ in range(5)]
    plain, shifted = [base**i for i in x], [base ** (i - max(x)) for i in x]
    return [p / sum(plain) for p in plain] == [s / sum(shifted) for s in shifted]


def exact_softmax(row: list[float]) -> list[decimal.Decimal]:
    """Softmax to 40 digits: wide exponents, so nothing overflows."""
    with decimal.localcontext(prec=40):
        e = [decimal.Decimal(x).exp() for x in row]
        return [x / sum(e) for x in e]


def relative_error(weight: Tensor, exact: list[list[decimal.Decimal]]) -> Tensor:
    """|weight − exact| / exact, in multiples of the type's machine epsilon, (rows, n) in float64."""
    error = [
        [abs(float((decimal.Decimal(w) - e) / e)) for w, e in zip(row, true, strict=True)]
        for row, true in zip(weight.tolist(), exact, strict=True)
    ]
    return torch.tensor(error, dtype=torch.float64) / torch.finfo(weight.dtype).eps


def _measure_overflow() -> None:
    large = torch.tensor([1000.0, 999.0, 998.0], dtype=torch.float64)
    measure("softmax.naive_at_1000", naive_softmax(large)[0])
    measure("softmax.stable_at_1000", softmax(large)[0])
    measure("softmax.stable_sum_at_1000", softmax(large).sum())
    one_peak = torch.tensor([1000.0] + [0.0] * 63, dtype=torch.float64)
    measure("softmax.minus_mean_is_nan", bool(naive_softmax(one_peak - one_peak.mean()).isnan().any()))
    measure("softmax.large_equals_small", bool((softmax(large) == softmax(large - 998)).all()))


def _measure_shift(score: Tensor, by: float = 1000.0) -> None:
    """Adding a constant: nothing changes but what adding it rounds off the scores."""
    coarse = (score * 16).round() / 16  # sixteenths stay exact next to 1000
    measure("softmax.shift_is_exact", bool((softmax(coarse + by) == softmax(coarse)).all()))
    measure("softmax.shift_moves", (softmax(score + by) - softmax(score)).abs().max())
    measure("softmax.shift_rounds_scores", ((score + by).double() - by - score.double()).abs().max())
    measure("softmax.naive_shifted_is_nan", bool(naive_softmax(score + by).isnan().all()))
