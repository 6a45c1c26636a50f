"""Hooks that find the module in which the first NaN of a forward pass was born."""

import pytest
import torch
from torch import nn

from attnbook.experiments import first_nan as experiment
from attnbook.reference import softmax


def test_the_first_bad_module_is_the_softmax_of_the_culprit():
    """All before it are fine, all after it are bad, and the output is nothing but NaN."""
    found = experiment.run()
    assert found["softmax.first_bad_is_the_softmax"] is True
    assert found["softmax.nan_never_goes_away"] is True
    assert found["softmax.nan_share_of_output"] == 1
    assert found["softmax.fine_modules_before"] == 10  # the six of block 0, then norm, q, k, v
    assert found["softmax.largest_score_before_nan"] > 89
    assert found["softmax.stable_model_is_finite"] is True


def test_a_sound_model_leaves_the_list_empty():
    """With the maximum subtracted nothing is noted."""
    model = experiment.build(softmax)
    bad = experiment.watch(model)
    model(torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(1)))
    assert bad == []


@pytest.mark.parametrize("culprit", [0, 2])
def test_another_culprit_is_named(culprit):
    """The list follows the fault, not its usual place."""
    model = experiment.build(softmax)
    bad = experiment.watch(model)
    with torch.no_grad():
        model[culprit].k.bias.fill_(float("inf"))
    model(torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(1)))
    assert bad[0] == f"{culprit}.k"


def test_children_are_named_before_their_parents():
    """A module finishes after what it contains, so the first name is the innermost."""
    inner = nn.Sequential(nn.Identity())
    model = nn.Sequential(inner)
    bad = experiment.watch(model)
    model(torch.tensor([float("nan")]))
    assert bad == ["0.0", "0", ""]


def test_building_leaves_the_global_generator_alone():
    """The next random number is what it would have been."""
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    experiment.build()
    assert torch.rand(1) == expected
