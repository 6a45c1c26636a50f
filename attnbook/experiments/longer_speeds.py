"""How fast each pair of SmolLM2's RoPE turns, plain and stretched, and what misreading a config does to it.

Nothing is random: the sizes are read from the model's file, the rest is arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

from attnbook.experiments import _smollm2
from attnbook.measure import experiment, measure
from attnbook.reference.rope_scaling import (
    LinearScaling,
    NTKScaling,
    RopeScaling,
    YarnScaling,
    plain_frequencies,
    scaling_from_config,
)


@experiment
def run(factor: int = 4) -> dict[str, Any]:
    """Compare frequencies. Data: `wavelength` tokens a full turn takes, and `ratio` plain / stretched by way."""
    config = _smollm2.model().config
    theta, d, context = config.theta, config.head_dim, config.context
    measure("longer.smollm2_context", context, unit="token")
    measure("longer.smollm2_theta", theta)
    plain = plain_frequencies(theta, d)
    wavelength = [2 * math.pi / speed for speed in plain]
    measure("longer.pairs", len(plain))
    measure("longer.pairs_never_round", sum(length > context for length in wavelength))
    measure("longer.slowest_turns", context / wavelength[-1], unit="ratio")
    yarn = YarnScaling(factor, context)
    ways: dict[str, RopeScaling] = {"linear": LinearScaling(factor), "ntk": NTKScaling(factor), "yarn": yarn}
    ratio = {way: slower(scaling, plain, theta, d) for way, scaling in ways.items()}
    for way, ratios in ratio.items():
        measure(f"longer.{way}_fastest", ratios[0], unit="ratio")
        measure(f"longer.{way}_slowest", ratios[-1], unit="ratio")
    measure("longer.yarn_kept", sum(abs(r - 1) < 1e-9 for r in ratio["yarn"]))
    measure("longer.yarn_slowed", sum(abs(r - factor) < 1e-9 for r in ratio["yarn"]))
    measure("longer.yarn_attention", yarn.sharpening(), unit="ratio")
    measure("longer.yarn_scores", yarn.sharpening() ** 2, unit="ratio")
    _misread(factor, plain, theta, d, context)
    return {"wavelength": wavelength, "ratio": ratio, "context": context}


def _misread(factor: int, plain: list[float], theta: float, d: int, context: int) -> None:
    """A published config of a stretched model, read rightly and in three wrong ways."""
    entry = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": context}
    right = slower(scaling_from_config(entry, max_position_embeddings=factor * context), plain, theta, d)
    measure("longer.config_right_kept", sum(abs(r - 1) < 1e-9 for r in right))
    without = {key: value for key, value in entry.items() if not key.startswith("original")}
    # Without the trained length, what is left is the length after stretching.
    wrong = slower(scaling_from_config(without, max_position_embeddings=factor * context), plain, theta, d)
    measure("longer.config_wrong_kept", sum(abs(r - 1) < 1e-9 for r in wrong))
    # Positions divided by hand, and frequencies once more by the config.
    once = scaling_from_config({"rope_type": "linear", "factor": factor})
    twice = [factor * r for r in slower(once, plain, theta, d)]
    measure("longer.config_twice", twice[-1], unit="ratio")


def slower(scaling: RopeScaling | None, plain: list[float], theta: float, d: int) -> list[float]:
    """How many times slower each pair turns than without scaling; all 1 for None."""
    speeds = plain if scaling is None else scaling.frequencies(theta, d)
    return [before / after for before, after in zip(plain, speeds, strict=True)]
