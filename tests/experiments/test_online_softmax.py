"""Softmax over blocks and merged halves against softmax and attention over everything at once."""

import pytest
import torch

from attnbook.experiments import online_softmax as experiment


@pytest.fixture(scope="module")
def found():
    return experiment.run(rows=7, n=131, blocks=(1, 5, 64, 200))


def test_one_pass_over_blocks_of_any_size_gives_the_same_softmax(found):
    """One by one, in odd blocks, in one block that is longer than the row."""
    assert found["softmax.online_error"] < 1e-13
    assert found["softmax.online_average_error"] < 1e-12
    assert found["softmax.order_error"] < 1e-12
    assert found["softmax.hidden_block_is_no_obstacle"] is True


def test_two_halves_of_attention_merge_into_the_whole(found):
    """And their plain average does not; nothing merged with something is something."""
    assert found["softmax.merge_error"] < 1e-12
    assert found["softmax.average_of_halves_error"] > 0.05
    assert found["softmax.merge_with_nothing_changes_nothing"] is True


def test_the_maximum_changes_as_often_as_the_harmonic_sum_says(found):
    """1 + 1/2 + … + 1/131 = 5.457, by the record argument; 70 rows of standard deviation about 2 were measured."""
    assert found["softmax.harmonic_sum"] == pytest.approx(5.457, abs=1e-3)
    assert found["softmax.maximum_changes"] == pytest.approx(5.457, abs=0.8)


def test_a_merge_that_forgets_the_rescaling_is_noticed(monkeypatch):
    """Weighting by lse itself, or averaging, is not the whole."""

    def average(out_a, lse_a, out_b, lse_b):
        return (out_a + out_b) / 2, torch.logaddexp(lse_a, lse_b)

    monkeypatch.setattr(experiment, "merge", average)
    found = experiment.run(rows=2, n=131)
    assert found["softmax.merge_error"] > 0.05
    assert found["softmax.merge_with_nothing_changes_nothing"] is False


def test_an_online_softmax_that_keeps_the_first_maximum_is_noticed(monkeypatch):
    """Without rescaling the old sum, the blocks do not fit together."""

    def stubborn(x, block):
        top = torch.cat([p.amax(-1, keepdim=True).expand_as(p) for p in x.split(block, -1)], -1)
        e = torch.exp(x - top)
        return e / e.sum(-1, keepdim=True)

    monkeypatch.setattr(experiment, "online_softmax", stubborn)
    assert experiment.run(rows=2, n=131)["softmax.online_error"] > 0.01
