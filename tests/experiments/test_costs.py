"""Costs counted and measured: formulas beside what really runs, at small sizes, and what a wrong formula would show."""

from dataclasses import replace

import pytest

from attnbook.costs import ModelShape, count_parameters, model
from attnbook.experiments import costs_flops, costs_memory, costs_models, costs_phases


@pytest.fixture(scope="module")
def memory():
    return costs_memory.run(lengths=(64, 128), long=256, head_dim=4, trained=64)


def test_measured_memory_grows_as_the_table_does(memory):
    """Twice the length: nearly four times the peak, of the plain program and of torch's own; inputs twice."""
    assert memory["costs.scores_growth"] == 4
    assert memory["costs.inputs_growth"] == 2
    for name in ("peak", "lines"):
        assert 3.5 < memory[f"costs.{name}_growth"] < 4
    assert [len(memory.data[name]) for name in ("lengths", "torch", "lines", "scores", "inputs")] == [3, 3, 2, 3, 3]


def test_more_tables_are_held_than_the_formula_names(memory):
    """At least two at a time in torch's plain form, more in the three lines, and training keeps some."""
    assert memory["costs.tables_torch"] > 2
    assert memory["costs.tables_lines"] > memory["costs.tables_torch"]
    assert memory["costs.tables_training"] > memory["costs.tables_kept"] > 1
    assert memory["costs.tables_kept_without"] is True


def test_a_counted_block_is_the_formula():
    """Grouped heads whose width is not d_model, with a gate and without: part by part, with numbers and without."""
    shape = ModelShape("m", 1, 12, 4, 2, 5, vocab=0, windows=(None,), d_ff=7)
    for variant in (shape, replace(shape, gated=False), replace(shape, n_kv_heads=4)):
        found = costs_flops.counted(variant, 9)
        assert found == costs_flops.layer(variant, 9)
        assert found == costs_flops.counted(variant, 9, device="meta")
    assert costs_flops.counted(shape, 9) != costs_flops.layer(replace(shape, n_kv_heads=1), 9)


def test_the_length_at_which_attention_overtakes():
    """2d and 4d in the shape of 2017; one token before, it has not."""
    shape = costs_flops.plain_shape(20, 4)
    assert (costs_flops.formula(shape), costs_flops.formula(shape, alone=True)) == (40, 80)
    for t, alone in ((40, False), (80, True)):
        assert costs_flops.overtaken(costs_flops.counted(shape, t), alone=alone)
        assert not costs_flops.overtaken(costs_flops.counted(shape, t - 1), alone=alone)


def test_the_first_length_is_found_by_halving():
    """Also the very first and the very last; a statement that never comes true is an error."""
    assert [costs_flops.first(lambda t, n=n: t >= n, 100) for n in (1, 2, 63, 100)] == [1, 2, 63, 100]
    with pytest.raises(ValueError, match="expected a length up to 100 at which it is true, found none"):
        costs_flops.first(lambda t: False, 100)


def test_doubling_costs_four_times_in_one_part_alone():
    """Two products grow by four at any length, the whole layer by less, and by more the longer it is."""
    growth = costs_flops._measure_growth(model("Llama-3.1-8B"), 512, 8192)
    assert set(growth) == {"lengths", "projections", "attention", "feed_forward"}
    shares = [sum(growth[part][i] for part in growth if part != "lengths") for i in range(len(growth["lengths"]))]
    assert shares == pytest.approx([1] * len(shares))
    assert growth["attention"] == sorted(growth["attention"])


def test_a_name_that_is_not_its_weights_is_found(monkeypatch):
    """All agree but three names; one shape read wrongly, and the agreement is gone."""
    found = costs_models.run()
    assert found["costs.published_agree"] is True
    assert found["costs.active_agree"] is True
    assert found["costs.exact_agree"] is True
    assert 0 < found["costs.exact_models"] < found["costs.published_models"]
    assert found["costs.names_apart"] == len(found.data["apart"])
    assert "Mixtral-8x7B" in found.data["apart"]

    def wrong(name):
        shape = model(name)
        return count_parameters(replace(shape, d_ff=2 * shape.d_ff) if name == "Phi-4" else shape)

    monkeypatch.setattr(costs_models, "count_parameters", wrong)
    assert costs_models.run()["costs.published_agree"] is False


def test_a_prompt_shares_one_reading_of_the_weights():
    """About as many operations a byte as tokens; for one token about one, in 16 bits."""
    found = costs_phases.run(context=512)
    assert 1 < found["costs.token_intensity"] < 1.1
    assert 500 < found["costs.prompt_intensity"] / found["costs.token_intensity"] < 512
    assert found["costs.cache_read"] == 512 * 32 * 2 * 8 * 128 * 2
