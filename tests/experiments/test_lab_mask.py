"""What five simple looks find of eight mistakes in a mask, and what a finite mask lets through."""

import numpy as np
import pytest
import torch

from attnbook.experiments import lab_mask
from attnbook.lab import solution


def attend_torch(q, k, v):
    n, m = len(q), len(k)
    scores = q @ k.T / q.shape[1] ** 0.5
    return torch.softmax(scores.masked_fill(torch.ones(n, m).tril(m - n) == 0, -torch.inf), 1) @ v


@pytest.mark.parametrize("attend", [lab_mask.reference, attend_torch, *solution(4)])
def test_a_right_function_passes_every_look(attend):
    """The reference and the lab's solution; each mistake is found by some look, the sums find only one."""
    found = lab_mask.run(attend, repeats=10)
    assert found["lab.mask_nothing_found"] is True
    assert found["lab.mask_every_mistake_found"] is True
    assert found["lab.mask_found_by_sums"] == 1 < found["lab.mask_found_by_future"]
    assert (found["lab.mask_loud_weak"], found["lab.mask_loud_strong"]) == (1, 0)


@pytest.mark.parametrize(
    ("mistake", "looks"),
    [
        ("after softmax", {"row sums"}),
        ("one more", {"no future"}),
        ("one less", {"no future", "own place"}),  # a row that sees nothing is spread over everything
        ("wrong way", {"no future", "whole past", "last alone"}),
        ("top left", {"last alone"}),
    ],
)
def test_which_look_finds_which_mistake(mistake, looks):
    """As it can be said without a measurement."""
    found = lab_mask.run(lab_mask.MISTAKES[mistake], repeats=5)
    assert {name for name, fine in zip(lab_mask.LOOKS, found.data["looks"]["yours"], strict=True) if not fine} == looks
    assert found["lab.mask_nothing_found"] is False


def test_what_minus_ten_leaves():
    """A hidden score of −10 keeps e⁻¹⁰ of a weight where all scores are equal."""
    q, k = np.zeros((2, 1)), np.ones((2, 1))
    out = lab_mask.MISTAKES["hidden = -10"](q, k, np.eye(2))
    assert out[0, 1] == pytest.approx(np.exp(-10) / (1 + np.exp(-10)))
