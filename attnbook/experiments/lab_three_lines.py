"""Are three lines written in the lab right, are they an average, and what does a forgotten division leave of it?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import three_lines


@experiment
def run(attention: Callable[..., Any] = three_lines.attention, seed: int = 0, repeats: int = 200) -> dict[str, Any]:
    """The function on normal numbers (t_q, d), (t_kv, d), (t_kv, d_v); values that show the weights. No data."""
    rng = np.random.default_rng(seed)
    shapes = ((11, 17), (13, 17), (13, 19))
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    out = attention(q, k, v)
    measure("lab.lines_gap", np.abs(out - three_lines.attention(q, k, v)).max())
    measure("lab.lines_ones", np.allclose(attention(q, k, np.ones((13, 1))), 1.0))
    measure("lab.lines_inside", bool((v.min(0) <= out).all() and (out <= v.max(0)).all()))

    # The function divides by √d once, so queries that are √d times as long leave the scores undivided.
    d, keys = 64, 16
    tops: dict[str, list[float]] = {"divided": [], "undivided": []}
    for _ in range(repeats):
        q, k = rng.standard_normal((2, keys, d))
        for name, factor in (("divided", 1.0), ("undivided", d**0.5)):
            tops[name].append(attention(q * factor, k, np.eye(keys)).max(-1).mean())
    for name, samples in tops.items():
        measure_mean(f"lab.lines_top_{name}", samples)
    return {}
