"""Attention in tiles: the same answer, fewer numbers held and moved, and mistakes that are noticed."""

import math

import pytest
import torch

from attnbook.experiments import (
    flash_backward,
    flash_causal,
    flash_exact,
    flash_io,
    flash_kernel,
    flash_memory,
    flash_reports,
    flash_traps,
)


def test_tiles_are_no_approximation():
    """Float64 to the last digits, the same operations, and shorter floats no worse than the plain calculation."""
    found = flash_exact.run(n=96, d=8, tile=16, repeats=3)
    assert found["flash.float64_error"] < 1e-13
    assert found["flash.operations"] == 2 * 2 * 96 * 96 * 8
    for name in ("operations_same", "tiles_change_bits", "same_tiles_same_bits"):
        assert found[f"flash.{name}"] is True
    assert found["flash.tiled_float32"] < 1e-6
    assert found["flash.tiled_bfloat16"] < found["flash.plain_bfloat16"]
    assert found["flash.careful_bfloat16"] == pytest.approx(found["flash.tiled_bfloat16"], rel=0.05)


def test_a_loop_that_is_not_attention_is_seen():
    """The comparison of the chapter's own cell: small for the right thing, large for another lse and a mean."""

    def right(q, k, v):
        score = q @ k.T / math.sqrt(q.shape[1])
        return torch.softmax(score, 1) @ v, torch.logsumexp(score, 1, keepdim=True)

    assert max(flash_exact.compare(right, n=20, d=4).values()) < 1e-12
    wrong = flash_exact.compare(lambda q, k, v: (v.mean(0).expand_as(v), right(q, k, v)[1] / math.log(2)), n=20, d=4)
    assert min(wrong.values()) > 0.1


def test_memory_without_tiles_is_two_tables():
    """Measured and computed agree, and tiles take less than a table from a few hundred tokens on."""
    found = flash_memory.run(lengths=(256, 512), d=8)
    for n in (256, 512):
        assert found[f"flash.tables_{n}"] == 2 * 4 * n * n
        assert found[f"flash.peak_plain_{n}"] == pytest.approx(found[f"flash.tables_{n}"], rel=1e-3)
        assert found[f"flash.results_{n}"] == 4 * n * (8 + 1) < found[f"flash.peak_tiled_{n}"]
    assert found["flash.doubled_plain"] == pytest.approx(4, rel=1e-3)


def test_what_is_moved_is_counted_by_doing_it():
    """With d components the counts meet at tiles of d / 2 rows, whatever is counted agrees, and the result is right."""
    found = flash_io.run(n=128, d=8)
    assert found["flash.io_plain"] == 4 * 128 * 128 + 4 * 128 * 8
    assert (found["flash.io_meets_rows"], found["flash.io_meets_rows_wider"]) == (4, 8)
    assert found["flash.io_as_counted"] is True
    assert found["flash.io_error"] < 1e-12
    assert found.data["moved"] == sorted(found.data["moved"], reverse=True)


def test_a_read_too_many_is_seen():
    """The counter counts every read and write, also of rows that were read before."""
    slow = flash_io.Slow(x=torch.zeros(4, 3))
    slow.write("x", slow.read("x", slice(2)) + 1, slice(2))
    slow.read("x")
    assert (slow.reads, slow.writes) == (6 + 12, 6)
    assert slow.tensors["x"].sum() == 6


def test_gradients_come_back_from_lse():
    """They are right, little is kept, one product more is carried out, and lse in base 2 spoils them in silence."""
    found = flash_backward.run(n=64, long=128, d=8, tile=16, repeats=3)
    for name in ("gradient_error64", "delta_error", "weights_again_error"):
        assert found[f"flash.{name}"] < 1e-12
    assert found["flash.kept_plain"] == 128 * 128 + 3 * 128 * 8
    assert found["flash.kept_tiled"] == 4 * 128 * 8 + 128
    assert found["flash.backward_more"] == 5 / 4
    assert found["flash.base_two_is_silent"] is True
    assert found["flash.base_two_off"] > 0.5


def test_tiles_that_nobody_sees_are_skipped():
    """n tiles on the diagonal and all below it: n · (n + 1) / 2, counted three ways."""
    found = flash_causal.run(n=64, tile=8, counted=32, d=4)
    assert (found["flash.tiles_in_all"], found["flash.tiles_visited"], found["flash.tiles_at_edge"]) == (64, 36, 8)
    for name in ("tiles_as_model", "tiles_as_products"):
        assert found[f"flash.{name}"] is True
    assert found["flash.causal_error"] < 1e-12
    assert found.data["kinds"].tolist()[:2] == [[2, 0, 0, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0]]


def test_mistakes_are_silent_and_wrong():
    """Each differs from attention, most without a NaN; a single tile hides the commonest."""
    found = flash_traps.run(n=64, d=4, tile=8, window=12, repeats=5)
    assert found["flash.walk_error"] < 1e-12
    for name in ("no_rescale_off", "total_only_off", "skipped_off", "hidden_tile_nan"):
        assert found[f"flash.{name}"] > 0.1
    for name in ("no_rescale_is_silent", "one_tile_hides_it", "causal_alone_is_safe", "hidden_tile_is_why"):
        assert found[f"flash.{name}"] is True
    with pytest.raises(ValueError, match="'rescale': expected one of '', 'no rescale'"):
        flash_traps.walk(*torch.zeros(3, 1, 2, 2), 1, mistake="rescale")


def test_excerpts_are_the_source(tmp_path):
    """From one line to another, moved to the left; lines that are not there, or are there twice, are errors."""
    file = tmp_path / "kernel.py"
    file.write_text("def f():\n    a = 1\n    if a:\n        b = a\n    c = a\n")
    assert flash_kernel.excerpt("if a", "b =", file) == "if a:\n    b = a"
    assert "tl.exp2" in flash_kernel.excerpt("# The tops may rise", "average = average * shrink")
    with pytest.raises(LookupError, match=r"'= a' stands in 2 lines, expected one"):
        flash_kernel.excerpt("= a", "c", file)
    with pytest.raises(LookupError, match="no line after the one with 'c =' holds 'if a'"):
        flash_kernel.excerpt("c =", "if a", file)


def test_reported_numbers_have_a_source():
    """What others measured is cited, never measured."""
    found = flash_reports.run()
    assert {made.kind for made in found} == {"cited"}
    assert all("arXiv" in made.source for made in found)
