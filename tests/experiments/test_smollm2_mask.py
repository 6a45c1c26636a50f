"""A trained model's causal mask: changing a token moves no earlier logit, and would, were there no mask."""

from __future__ import annotations

import functools

import pytest
import torch

from attnbook.api.attention import attention
from attnbook.experiments import smollm2_mask
from attnbook.models import smollm2

TEXT = "A map of the river."


def test_the_past_stays_and_the_rest_moves():
    """Not by one bit, and at every later place."""
    found = smollm2_mask.run(text=TEXT, positions=(1, 3))
    assert found["mask.trained_probe_passes"] is True
    assert found["mask.trained_past_moves"] == 0
    assert found["mask.trained_future_moves"] > 0.1
    moved = found.data["moved"]
    assert (moved[0] > 0).tolist() == [False] + [True] * (moved.shape[1] - 1)
    assert (moved[1] > 0).tolist() == [False] * 3 + [True] * (moved.shape[1] - 3)


def test_without_a_mask_the_probe_finds_it(monkeypatch: pytest.MonkeyPatch):
    """The same weights, every token seen by every other."""
    open_to_all = functools.partial(_everything, attention)
    monkeypatch.setattr(smollm2, "attention", open_to_all)
    found = smollm2_mask.run(text=TEXT, positions=(1, 3))
    assert found["mask.trained_probe_passes"] is False
    assert found["mask.trained_past_moves"] > 0.1


def _everything(attend, q, k, v, *, is_causal, **no_other):
    return attend(q, k, v)


def test_a_changed_token_is_another():
    """One of them, at its place."""
    tokens = torch.tensor([[0, 7, 0]])
    assert smollm2_mask.changed(tokens, 0).tolist() == [[1, 7, 0]]
    assert smollm2_mask.changed(tokens, 1).tolist() == [[0, 6, 0]]
    assert tokens.tolist() == [[0, 7, 0]]
