"""Queries decide the length, keys and values the contents, and a pair stays a pair."""

import pytest

from attnbook.experiments import cross_attention


def test_a_word_is_read_backwards():
    """Whatever the word, letters that repeat included."""
    for word in ("WEIGHTS", "BANANA", "A"):
        found = cross_attention.run(word=word, repeats=3)
        assert found.data["written"] == word[::-1]
        assert found["names.reads_backwards"] is True


def test_without_a_scale_it_cannot_be_read():
    """At scale 0 every letter gets the same weight: the test above can fail."""
    found = cross_attention.run(scale=0.0, repeats=3)
    assert found["names.reads_backwards"] is False
    assert found["names.reads_backwards_weight"] == pytest.approx(1 / 7)


def test_lengths_order_and_swaps():
    """5 queries on 7 pairs; shuffled pairs change nothing, shuffled values or swapped arguments much."""
    found = cross_attention.run(repeats=50)
    assert (found["names.cross_out_rows"], found["names.cross_keys"]) == (5, 7)
    assert found["names.cross_torch_error"] < 1e-12
    assert found["names.pairs_error"] < 1e-12
    assert found["names.values_only_change"] > 0.5
    assert found["names.swapped_change"] > 0.5
