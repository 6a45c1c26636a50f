"""Sinusoidal positions: what are the waves like, and what is special about moving along them?

And beside them a learned table, which has none of that before it is trained, and an end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnbook.errors import ShapeError
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import LearnedPositions, sinusoidal_positions


@experiment
def run(seed: int = 0, positions: int = 2048, d_model: int = 64, tables: int = 20) -> dict[str, Any]:
    """The first `positions` rows of d_model components; `tables` untrained tables of the same size."""
    rows = np.asarray(sinusoidal_positions(positions, d_model))  # (positions, d_model), float64
    sines, cosines = rows[:, 0::2], rows[:, 1::2]
    speed = np.arctan2(sines[1], cosines[1])  # radians from position 0 to position 1
    lengths = 2 * math.pi / speed  # of the waves, in positions

    measure("position.wave_order", np.allclose(rows[1, :2], [math.sin(1), math.cos(1)], rtol=0, atol=1e-12))
    measure("position.wave_first_row", np.array_equal(rows[0], np.tile([0.0, 1.0], d_model // 2)))
    measure("position.wave_shortest", lengths[0])
    measure("position.wave_longest", lengths[-1])
    measure("position.wave_growth", lengths[1] / lengths[0], unit="ratio")
    measure("position.wave_growth_constant", np.ptp(lengths[1:] / lengths[:-1]) < 1e-9)
    measure("position.wave_norm", float(np.linalg.norm(rows, axis=1).mean()) ** 2)
    measure("position.wave_norm_error", np.ptp(np.linalg.norm(rows, axis=1)))
    measure("position.wave_shift_error", max(_shift_error(rows, k) for k in (1, 7, 500)))

    likeness = rows @ rows.T / (d_model / 2)  # cosines, since all rows are equally long
    by_distance = likeness[0]
    spread = max(float(np.ptp(np.diagonal(likeness, k))) for k in (1, 7, 500))
    measure("position.wave_distance_error", spread)
    measure("position.wave_neighbours", by_distance[1])
    rising = 1 + int(np.argmax(np.diff(by_distance) > 0))
    measure("position.wave_likeness_rises", by_distance[rising] > by_distance[rising - 1])

    _learned(seed, positions, d_model, tables)
    return {"rows": rows, "likeness": by_distance}


def _shift_error(rows: NDArray[np.float64], k: int) -> float:
    """How far row p + k is from one fixed matrix times row p, for all p: the matrix is written down by hand."""
    pairs = rows.shape[1] // 2
    shift = np.zeros((2 * pairs, 2 * pairs))
    for i in range(pairs):
        angle = k * 10000 ** (-i / pairs)
        c, s = math.cos(angle), math.sin(angle)
        shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, s], [-s, c]]  # (sin, cos) -> k positions on
    return float(np.abs(rows[:-k] @ shift.T - rows[k:]).max())


def _learned(seed: int, positions: int, d_model: int, tables: int) -> None:
    """Untrained tables: rows that know nothing of one another, as many weights as numbers, and an end."""
    likeness = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(tables):
            table = LearnedPositions(positions, d_model)
            rows = table(positions).detach()
            likeness.append(torch.cosine_similarity(rows[1:], rows[:-1]).mean())
    measure_mean("position.learned_neighbours", likeness)
    measure("position.learned_first_row", torch.equal(rows[0], table.weight[0].detach()))
    measure("position.learned_weights", sum(weight.numel() for weight in table.parameters()))
    measure("position.learned_last", bool((table(torch.tensor([positions - 1])) == table.weight[-1]).all()))
    measure("position.learned_ends", _refused(table, positions + 1) and _refused(table, torch.tensor([positions])))


def _refused(table: LearnedPositions, asked: Any) -> bool:
    """Does the table refuse, and does the error say how long it is?"""
    try:
        table(asked)
    except ShapeError as error:
        return str(table.weight.shape[0]) in str(error)
    return False
