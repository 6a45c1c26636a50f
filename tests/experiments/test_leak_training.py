"""A leak in the mask: a loss no honest model can have, and text that gives it away."""

import math

import pytest
import torch

from attnbook.experiments import _complement as task
from attnbook.experiments import leak_training


@pytest.fixture(scope="module")
def found():
    return leak_training.run(seed=3, models=3, steps=120)


def test_the_floor_is_the_chance_part_of_the_sequence(found):
    """Five of eleven predicted digits are any of ten."""
    assert found["mask.loss_floor"] == pytest.approx(5 / 11 * math.log(10))


def test_only_the_leaking_models_are_below_the_floor_held_out_data_included(found):
    """Their held-out loss is as good as their training loss: a validation set shows nothing."""
    assert found["mask.honest_loss"] > found["mask.loss_floor"]
    assert found["mask.leaky_loss"] < found["mask.loss_floor"] / 2
    assert found["mask.leaky_held_out_loss"] < found["mask.loss_floor"] / 2


def test_writing_freely_turns_it_round(found):
    """Without the next place to look at, the leaking models are lost and the honest ones are not."""
    assert found["mask.honest_free_worst"] > 0.8
    assert found["mask.leaky_free_best"] < 0.6


def test_a_task_can_hide_the_leak(found):
    """On a plain copy the leaking models write well all the same: the same digit stands six places back."""
    assert found["mask.leaky_copy"] > found["mask.leaky_free_best"]


def test_the_probe_tells_them_apart(found):
    """It passes the honest model and reports the leaking one."""
    assert found["mask.probe_passes_right"] is True
    assert found["mask.probe_finds_leak"] is True


def test_sequences_are_digits_and_their_complements():
    """The second half is 9 minus the first, or a plain copy when asked."""
    x = task.sequences(torch.Generator().manual_seed(0), 2, 3)
    assert x.shape == (2, 3, 12)
    assert torch.equal(x[..., :6] + x[..., 6:], torch.full((2, 3, 6), 9))
    copy = task.sequences(torch.Generator().manual_seed(0), 2, 3, complement=False)
    assert torch.equal(copy[..., :6], copy[..., 6:])


def test_models_side_by_side_do_not_touch_one_another():
    """One model alone gives what it gave among the others."""
    model = task.Model.fresh(torch.Generator().manual_seed(0), 3)
    x = task.sequences(torch.Generator().manual_seed(1), 3, 2)
    mask = leak_training.right_mask(12)
    torch.testing.assert_close(model.one(1)(x[1:2], mask), model(x, mask)[1:2].detach())
