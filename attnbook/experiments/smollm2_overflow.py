"""Which exp can bear the scores of a trained model, if the maximum is not subtracted?

The scores of `smollm2_scores`, put through softmax as the formula has it, in several types.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.experiments._smollm2 import model
from attnbook.experiments.smollm2_scores import TEXTS, dot_products, seen, visible
from attnbook.measure import experiment, measure
from attnbook.reference import naive_softmax


@experiment
def run(texts: tuple[str, ...] = TEXTS) -> dict[str, Tensor]:
    """Read the texts. Data: `largest` (layers, heads), each head's largest score."""
    products = [dot_products(model(), text) for text in texts]  # (layers, heads, t, t) each
    scores = [product / model().config.head_dim ** 0.5 for product in products]
    largest = torch.stack([seen(score).amax(-1) for score in scores]).amax(0)
    measure("softmax.trained_heads", largest.numel())
    measure("softmax.trained_largest_score", largest.max())
    half = broken([score.half() for score in scores])
    undivided = broken(products)
    measure("softmax.trained_broken_float16", half.double().mean(), unit="ratio")
    measure("softmax.trained_broken_bfloat16", int(broken([score.bfloat16() for score in scores]).sum()))
    measure("softmax.trained_broken_undivided", undivided.double().mean(), unit="ratio")
    measure("softmax.trained_same_heads_break", torch.equal(half, undivided))
    return {"largest": largest}


def broken(scores: list[Tensor]) -> Tensor:
    """In which heads some weight of some text becomes inf or NaN, each softmax in the scores' type: (layers, heads)."""
    found = [~naive_softmax(score.masked_fill(~visible(score), -torch.inf)).isfinite() for score in scores]
    return torch.stack([where.flatten(-2).any(-1) for where in found]).any(0)
