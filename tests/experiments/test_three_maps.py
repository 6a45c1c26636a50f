"""One map makes scores symmetric and self-centred; two maps do neither."""

import pytest
import torch

from attnbook.experiments import three_maps


def test_what_two_maps_change():
    """Symmetry goes, and a position is its own favourite as often as chance says: 1 in 20."""
    found = three_maps.run(repeats=200)
    assert found["names.parameters"] == 3 * 64 * 64
    assert found["names.one_map_symmetric"] is True
    assert found["names.two_maps_asymmetric"] is True
    assert found["names.self_top_one_map"] > 0.99
    assert found["names.self_top_two_maps"] == pytest.approx(1 / 20, abs=0.02)
    assert found["names.query_variance"] == pytest.approx(1, abs=0.02)
    assert found["names.linear_error"] < 1e-5
    assert found["names.own_hidden"] is True


def test_chance_follows_the_number_of_tokens():
    """With 5 tokens it is 1 in 5."""
    assert three_maps.run(repeats=400, tokens=5)["names.self_top_two_maps"] == pytest.approx(1 / 5, abs=0.05)


def test_symmetry_is_really_looked_at():
    """A matrix that differs from its transpose in one place is not symmetric."""
    score = torch.ones(1, 3, 3)
    assert three_maps._symmetric(score)
    score[0, 0, 2] += 1e-3
    assert not three_maps._symmetric(score)
