"""Exercise of chapter 7: RoPE, with the pairs half a vector apart."""

from __future__ import annotations

import numpy as np

from attnbook.lab.step import Array, Case, Part, Step

FLAWS = (
    *("neighbours", "backwards", "speed_without_two", "one_speed", "faster_and_faster", "from_one", "from_zero"),
    *("no_minus", "overwritten", "added", "degrees", "fixed_base"),
)


def model(x: Array, positions: Array, base: float, *, flaws: frozenset[str] = frozenset()) -> Array:
    """Components i and i + d/2 of x (t, d), turned by position · base^(−2i/d); positions (t,) -> (t, d)."""
    x = np.asarray(x, np.float64)
    cos, sin = _turns(np.asarray(positions, np.float64), x.shape[1], base, flaws)
    half = x.shape[1] // 2
    first, second = (x[:, 0::2], x[:, 1::2]) if "neighbours" in flaws else (x[:, :half], x[:, half:])
    if "added" in flaws:
        new_first, new_second = first + cos, second + sin
    elif "no_minus" in flaws:
        new_first, new_second = first * cos + second * sin, first * sin + second * cos
    else:
        new_first = first * cos - second * sin
        new_second = (new_first if "overwritten" in flaws else first) * sin + second * cos
    if "neighbours" in flaws:
        return np.stack([new_first, new_second], -1).reshape(x.shape)
    return np.concatenate([new_first, new_second], axis=1)


def _turns(positions: Array, d: int, base: float, flaws: frozenset[str]) -> tuple[Array, Array]:
    """Cosine and sine (t, d/2) of every position's angles."""
    if "from_one" in flaws:
        positions = positions + 1
    if "from_zero" in flaws:
        positions = np.arange(len(positions), dtype=np.float64)
    power = np.arange(d // 2) * (1 if "speed_without_two" in flaws else 2) / d
    speed = (10000.0 if "fixed_base" in flaws else float(base)) ** (power if "faster_and_faster" in flaws else -power)
    if "one_speed" in flaws:
        speed = np.ones_like(speed)
    angle = positions[:, None] * speed
    if "degrees" in flaws:
        angle = np.deg2rad(angle)
    return np.cos(angle), np.sin(-angle if "backwards" in flaws else angle)


def _cases() -> tuple[Case, ...]:
    """One pair; two; positions that neither begin at 0 nor come in order; prime sizes (d is twice a prime)."""
    rng = np.random.default_rng(7)
    some = (
        ([[1.0, 0.0]], [1], 100.0),
        ([[1.0, 2.0]], [0], 100.0),
        ([[1.0, 2.0, 0.0, 0.0]], [2], 100.0),
        ([[1.0, 0.0, 2.0, 0.0], [1.0, 0.0, 2.0, 0.0]], [3, 0], 100.0),
        (rng.standard_normal((3, 6)), [2, 3, 5], 10000.0),
        (rng.standard_normal((11, 14)), rng.permutation(13)[:11], 500.0),
    )
    return tuple(
        Case((np.asarray(x, np.float32), np.asarray(positions, np.int64), base), ("x", "positions", "base"))
        for x, positions, base in some
    )


STEP = Step(
    key="chapter-7",
    stem="exercise07_rotate",
    page="07-positions",
    folder="exercises",
    parts=(Part(name="rope", model=model, cases=_cases(), flaws=FLAWS),),
)
