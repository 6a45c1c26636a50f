"""Tiles of the lab measured from outside: errors, memory and growth, and that wrong functions are seen."""

import numpy as np
import pytest
import torch

from attnbook.experiments import lab_tiles
from attnbook.experiments._held import held_bytes
from attnbook.reference import three_lines

SMALL = {"n": 64, "d": 5, "repeats": 3}


def test_a_walk_is_the_same_attention():
    """To the last digits in float64, in any order of the keys; in float32 no worse than the three lines."""
    found = lab_tiles.run(**SMALL)
    assert found["lab.tiles_gap"] < 1e-14
    assert found["lab.tiles_order_gap"] < 1e-13
    assert found["lab.tiles_error_tiles"] < 2 * found["lab.tiles_error_plain"] < 1e-6
    assert found["lab.tiles_error_ratio_one"] == pytest.approx(1, abs=0.3)
    assert found["lab.tiles_root_widens"] is True
    assert found["lab.tiles_number"] == 4
    assert (found["lab.tiles_rises_falling"], found["lab.tiles_rises_rising"]) == (1, 4)
    assert found["lab.tiles_rises"] == pytest.approx(found["lab.tiles_harmonic"], abs=0.1)
    assert found["lab.tiles_harmonic"] == 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert found["lab.tiles_needed_falling"] < found["lab.tiles_needed_rising"]


def test_a_table_is_seen():
    """The three lines in place of a walk hold tables that double with the keys, and a walk does not."""
    whole = lab_tiles.run(lambda q, k, v, block: three_lines.attention(q, k, v), **SMALL)
    assert whole["lab.tiles_held_tiles"] == pytest.approx(whole["lab.tiles_held_plain"], rel=1e-3)
    assert whole["lab.tiles_held_plain"] > 2 * whole["lab.tiles_table"] == 2 * 4 * 256 * 4096
    assert whole["lab.tiles_doubled_plain"] == pytest.approx(2, rel=1e-2)
    walked = lab_tiles.run(**SMALL)
    assert walked["lab.tiles_held_tiles"] < walked["lab.tiles_table"] / 4
    assert walked["lab.tiles_doubled_tiles"] == pytest.approx(1, rel=1e-2)


def test_a_mean_of_tiles_is_seen():
    """It is far from attention, and another answer in another order of the keys."""

    def mean(q, k, v, block):
        starts = range(0, len(k), block)
        return sum(lab_tiles.walk(q, k[i : i + block], v[i : i + block], block) for i in starts) / len(starts)

    found = lab_tiles.run(mean, n=150, d=5, repeats=3)
    assert found["lab.tiles_gap"] > 0.1
    assert found["lab.tiles_order_gap"] > 0.1
    assert found["lab.tiles_error_ratio_tiles"] > 1e5


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_what_is_held_is_counted(library):
    """A table of all queries and keys is at least its own bytes; tiles are a small part of them."""
    q, k = (library(np.zeros((t, 1), np.float32)) for t in (128, 512))
    table = 4 * 128 * 512
    assert table <= held_bytes(lambda: (q @ k.T) @ k, like=q) < 1.1 * table
    assert held_bytes(lambda: [k[i : i + 16] * 1 for i in range(0, 512, 16)], like=q) < 0.2 * table
    kept = []  # pieces that are all kept are as much as the whole
    assert held_bytes(lambda: kept.extend(q @ k[i : i + 16].T for i in range(0, 512, 16)), like=q) >= table


def test_what_plain_python_holds_is_counted():
    """A list of numbers counts with the numbers in it."""
    assert held_bytes(lambda: [float(i) for i in range(10_000)], like=0) > 10_000 * (8 + 24)
