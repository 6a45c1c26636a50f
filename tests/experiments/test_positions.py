"""The encodings of positions measured: each has its own property, and not the others'."""

import math

import pytest
import torch

from attnbook.experiments import positions_alibi, positions_precision, positions_rope, positions_waves


@pytest.fixture(scope="module")
def waves():
    return positions_waves.run(seed=3, positions=600, d_model=32, tables=3)


@pytest.fixture(scope="module")
def turned():
    return positions_rope.run(seed=3, head_dim=32, pairs=300)


def test_waves_grow_by_the_same_factor_from_two_pi_on(waves):
    """10000^(2 / d) from one pair to the next."""
    assert waves["position.wave_shortest"] == pytest.approx(2 * math.pi)
    assert waves["position.wave_longest"] == pytest.approx(2 * math.pi * 10000 ** (30 / 32))
    assert waves["position.wave_growth"] == pytest.approx(10000 ** (2 / 32))
    assert waves["position.wave_growth_constant"] is True


def test_moving_along_the_waves_is_one_matrix(waves):
    """And so lengths stay and products depend on the distance."""
    for name in ("shift", "distance", "norm"):
        assert waves[f"position.wave_{name}_error"] < 1e-10
    assert waves["position.wave_norm"] == pytest.approx(16)


def test_an_untrained_table_knows_no_neighbours_and_ends(waves):
    """Its rows are unlike; the waves' are alike."""
    assert abs(waves["position.learned_neighbours"]) < 0.05 < waves["position.wave_neighbours"]
    assert waves["position.learned_weights"] == 600 * 32
    assert waves["position.learned_ends"] is True
    assert waves["position.learned_first_row"] is True
    assert waves["position.learned_last"] is True


def test_turned_scores_know_the_distance_and_its_sign_only(turned):
    """Moved together nothing changes; another distance or side changes much."""
    assert turned["position.rope_shift_error"] < 1e-6
    assert turned["position.rope_norm_error"] < 1e-6
    assert turned["position.rope_other_distance"] > 0.01
    assert turned["position.rope_other_side"] > 0.01
    assert turned["position.rope_turn"] is True
    assert turned["position.rope_slowest"] == pytest.approx(10000 ** (30 / 32), rel=1e-3)


def test_layouts_agree_when_rows_are_reordered_and_not_otherwise(turned):
    """Wrong in both, scores still depend on the distance alone; wrong in one, no more."""
    assert turned["position.layout_converted_error"] < 1e-5
    assert turned["position.layout_wrong_shift"] < 1e-5
    assert turned["position.layout_wrong_likeness"] < 0.7
    assert turned["position.layout_mixed_likeness"] < 0.7
    assert turned["position.layout_mixed_shift"] > 0.3


def test_angles_in_few_bits_are_wrong():
    """Each type is worse than the next, and what the package does is right."""
    found = positions_precision.run(head_dim=64, farthest=2**17)
    errors = [found[f"position.{name}_error_2048"] for name in ("bfloat16", "float16", "float32")]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] > 0.1 > 1e-3 > errors[2]
    assert found["position.bfloat16_distinct"] == 256 + 4 * 128 + 1
    assert found["position.float16_distinct"] == 2048 + 1024 + 1
    assert found["position.float32_error_far"] > 1e-4
    assert found["position.ours_error"] < 1e-6


def test_slopes_halve_and_twelve_heads_take_them_from_sixteen():
    """And both ways of writing the penalty agree behind a causal mask only."""
    found = positions_alibi.run(seed=3, tokens=300)
    assert torch.equal(found.data["slopes"], 0.5 ** torch.arange(1.0, 9, dtype=torch.float64))
    assert found["position.alibi_twelve_begin"] is True
    assert found["position.alibi_twelve_between"] is True
    assert found["position.alibi_step"] == pytest.approx(math.exp(-0.5))
    assert found["position.alibi_near_first"] < found["position.alibi_near_last"]
    assert found["position.alibi_causal_difference"] < 1e-6 < 0.1 < found["position.alibi_open_difference"]
