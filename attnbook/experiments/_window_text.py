"""The trained model under a window: what it reads and which keys it may see. No experiment; they share it."""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.experiments import _smollm2
from attnbook.reference import causal_mask, window_mask

TEXT = (
    "The lighthouse keeper had two cats and no visitors. The cats were called Salt and Pepper, although both of them "
    "were grey, and they slept on the warm stone beside the lamp. Every evening, just before the sun went down, the "
    "keeper climbed the stairs with a can of oil, filled the lamp, and lit it. Then he wrote the time in a large book, "
    "together with the weather and the number of ships that he had seen. Most of the pages said the same thing: clear "
    "sky, light wind, three ships.\n\n"
    "One night in October a storm came in from the west. The waves were so high that they reached the windows of the "
    "kitchen, and the wind tore the door of the shed from its hinges. The keeper stayed awake until morning, because "
    "the lamp went out again and again, and each time he had to light it with cold hands. At about four o'clock he saw "
    "a small boat between the rocks. A woman stood in it, and she was shouting something that he could not hear.\n\n"
    "He ran down to the beach with a rope and threw it as far as he could. The woman caught it on the third attempt."
)
"""Written for this book: plain English that no model has by heart, and long enough for many windows."""


def tokens(most: int) -> Tensor:
    """The first tokens of the text behind the start token, (1, most or fewer)."""
    return _smollm2.text_tokens(TEXT)[:, :most]


def mask(t: int, window: int, kept: tuple[int, ...] = ()) -> Tensor:
    """A causal window, and beside it some tokens by their place that every later one may see: booleans (t, t)."""
    like = torch.zeros(0)
    seen = torch.as_tensor(window_mask(t, t, window, like=like)).clone()
    seen[:, list(kept)] = True
    return seen & torch.as_tensor(causal_mask(t, t, like=like))
