"""Heads counted, compared, cut wrongly and shared: every measurement of chapter 6 that needs no training."""

import pytest
import torch

from attnbook.experiments import heads_counts, heads_groups, heads_layer, heads_ratio, heads_traps


@pytest.fixture(scope="module")
def counted():
    return heads_counts.run(d_model=12, n_heads=3, t=16)


def test_what_splitting_keeps(counted):
    """Parameters, and operations as torch counts them: 2 · t · 12² for a linear map, 2 · 2 · t² · 12 inside."""
    assert counted["heads.parameters_one"] == counted["heads.parameters_eight"] == 4 * 12 * 12
    assert counted["heads.flops_projections"] == 4 * 2 * 16 * 12 * 12
    assert counted["heads.flops_attention"] == 2 * 2 * 16 * 16 * 12
    for name in ("flops_projections_same", "flops_attention_same", "flops_as_counted"):
        assert counted[f"heads.{name}"] is True


def test_what_splitting_changes(counted):
    """A table for each head, of smaller rank."""
    assert (counted["heads.weights_one"], counted["heads.weights_eight"]) == (16**2, 3 * 16**2)
    assert (counted["heads.rank_one"], counted["heads.rank_eight"]) == (12, 4)
    assert counted["heads.table_bytes_eight"] == 3 * counted["heads.table_bytes_one"]


def test_the_layer_is_the_formula_and_torchs_own():
    """Head by head, as torch does it, and one head taken away."""
    found = heads_layer.run(d_model=12, n_heads=3, b=2, t=5)
    for name in ("torch", "torch_weights", "loop", "first_head"):
        assert found[f"heads.{name}_error"] < 1e-12
    for name in ("merge_undoes_split", "split_shape", "same_shape"):
        assert found[f"heads.{name}"] is True


def test_the_comparison_sees_another_scale():
    """A layer that divides by √d_model is not torch's."""
    layer = heads_layer.MultiHeadAttention(12, 3, scale=12**-0.5, dtype=torch.float64)
    x = torch.randn(1, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert heads_layer.error(heads_layer.torch_layer(layer)(x, x, x)[0], layer(x)) > 1e-6


def test_wrong_shapes_are_silent():
    """Nothing is raised, every one is wrong, and the probe of the causal leak finds one of three."""
    found = heads_traps.run(d_model=12, n_heads=3, t=12, repeats=2)
    assert (found["heads.seen_right"], found["heads.seen_cut"]) == (12, 4)
    for name in ("no_error", "probe_finds_joined", "probe_passes_others", "view_raises"):
        assert found[f"heads.{name}"] is True
    assert all(found[f"heads.off_{name}"] > 0.1 for name in ("cut", "join", "order"))


def test_groups_are_neighbours():
    """Six query heads over three: 0 0 1 1 2 2. Taking turns, 0 1 2 0 1 2, is right for two of them."""
    found = heads_groups.run(n_heads=6, n_kv_heads=3, t=5, d=4, repeats=2)
    assert found.data["reads"].tolist() == [0, 0, 1, 1, 2, 2]
    assert found["heads.tiled_wrong_heads"] == 4
    assert found["heads.repeated_error"] < 1e-12
    assert found["heads.groups_torch_error"] < 1e-12
    assert (
        found["heads.kv_numbers_own"] == 2 * found["heads.kv_numbers_grouped"] == 6 * found["heads.kv_numbers_shared"]
    )


def test_one_head_subtracts_by_the_ratio_of_its_weights():
    """tanh of half the difference, for a − b from −5 to 5."""
    found = heads_ratio.run()
    assert found["heads.ratio_error"] < 1e-12
    assert found["heads.ratio_rises"] is True
    assert found.data["out"][5, 0] == pytest.approx(0.98661429815)
