"""Models with and without positions: read in another order, counted from the wrong place, in the wrong layout."""

import pytest

from attnbook.experiments import positions_layout, positions_mistakes, positions_permutation

ENCODED = ("sinusoidal", "learned", "rope", "alibi")


def test_only_positions_or_a_mask_tell_orders_apart():
    """And behind a mask the last token of one layer still knows nothing."""
    found = positions_permutation.run(seed=3, models=2)
    assert found["position.orders"] == 120
    for name in ("permutation_error", "verb_error", "last_of_one_layer", "alibi_backwards"):
        assert found[f"position.{name}"] < 1e-5
    for name in (*(f"{name}_moves" for name in ENCODED), "causal_moves", "last_of_two_layers", "rope_backwards"):
        assert found[f"position.{name}"] > 0.01


def test_each_mistake_hurts_the_encodings_that_it_should():
    """Wrong counting changes what is added; RoPE forgives what moves all tokens alike; ALiBi has no positions."""
    found = positions_mistakes.run(seed=3, models=2)
    hurt = {
        "moved": ("sinusoidal", "learned"),
        "cached": (),
        "restarted": ("sinusoidal", "learned", "rope"),
        "padded": (),
        "padded_wrong": ("sinusoidal", "learned"),
        "repeated": ("sinusoidal", "learned"),
    }
    for mistake, names in hurt.items():
        for name in ENCODED:
            assert (found[f"position.{name}_{mistake}"] > 0.01) is (name in names), (name, mistake)
            assert (found[f"position.{name}_{mistake}"] < 1e-5) is (name not in names), (name, mistake)
    assert found["position.values_kept"] < 1e-5 < 0.1 < found["position.values_turned"]


def test_the_trained_model_in_the_wrong_layout_still_reads_and_no_longer_copies():
    """Text suffers a little, repeated random tokens wholly."""
    found = positions_layout.run(seed=3, draws=2, half=8)
    assert found["position.model_loss"] < found["position.model_confused_loss"] < found["position.model_chance"]
    assert found["position.model_confused_repeated_loss"] > found["position.model_chance"] - 1
    assert found["position.model_confused_repeated_loss"] > found["position.model_repeated_loss"] + 2


def test_a_reordering_and_its_inverse_are_the_model():
    """The mistake is in the order of the rows and nowhere else."""
    tokens = positions_layout.trained.text_tokens()[:, :9]
    right = positions_layout.trained.model()
    there = positions_layout._reordered("half")
    assert there.layers[0].qkv.shape == right.layers[0].qkv.shape
    assert positions_layout._loss(there, tokens) != pytest.approx(positions_layout._loss(right, tokens), rel=1e-3)
