"""How large are the scores of a trained model, before and after the division by √d?

The model reads three short texts. Before the division, normal random numbers would give q·k a standard deviation of √d
(`score_variance`); what training made of that is looked at in every head of every layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.experiments._smollm2 import model
from attnbook.measure import experiment, measure
from attnbook.models import SmolLM2
from attnbook.reference import causal_mask

TEXTS = (
    "The library keeps its oldest maps in a long, narrow room on the second floor. Nobody had opened the last drawer "
    'for years, until a student asked for a map of the river. "It must be here," said the librarian, "because the '
    'catalogue says so." They found the map under a pile of letters.',
    "To bake bread you need flour, water, salt and time. Mix them, wait an hour, fold the dough, and wait again. When "
    "the dough has doubled, put it into a hot oven for forty minutes. Bread that is cut too early is sticky inside.",
    "def mean(numbers):\n    total = 0\n    for number in numbers:\n        total = total + number\n"
    "    return total / len(numbers)\n\nprint(mean([1, 2, 3, 4]))  # prints 2.5\n",
)
LIMIT = 0.99
"""A row is saturated, as in `saturation`, when one key has more than this of the weight."""


@experiment
def run(texts: tuple[str, ...] = TEXTS) -> dict[str, Tensor]:
    """Read the texts. Data: `sd` (texts, layers, heads), the standard deviation of each head's divided scores."""
    products = [dot_products(model(), text) for text in texts]  # (layers, heads, t, t) each
    d = model().config.head_dim
    plain = torch.stack([seen(product).std(-1) for product in products])
    divided = plain / d**0.5
    measure("scaling.trained_heads", plain[0].numel())
    measure("scaling.trained_sd_plain", plain.median())
    measure("scaling.trained_sd_divided", divided.median())
    measure("scaling.trained_sd_largest", divided.max())
    measure("scaling.trained_heads_above_start", (divided > 1).double().mean(), unit="ratio")
    for name, by in (("plain", 1.0), ("divided", d**0.5)):
        rows = torch.cat([_saturated(product / by).flatten() for product in products])
        measure(f"scaling.trained_saturated_{name}", rows.double().mean(), unit="ratio")
    return {"sd": divided}


@torch.no_grad()
def dot_products(trained: SmolLM2, text: str) -> Tensor:
    """Every q·k of a reading, before the division: (layers, heads, t, t), keys of the future not taken out."""
    kept: dict[str, list[Tensor]] = {"q": [], "k": []}

    def look(layer: int, name: str, x: Tensor) -> None:
        if name in kept:
            kept[name].append(x[0])

    trained.hidden(torch.tensor([trained.tokenizer.encode(text)]), watch=look)
    q, k = (torch.stack(kept[name]) for name in ("q", "k"))
    groups = q.shape[1] // k.shape[1]  # neighbouring query heads share a key head
    return q @ k.repeat_interleave(groups, dim=1).mT


def visible(score: Tensor) -> Tensor:
    """Which keys each query may see: (t, t)."""
    t = score.shape[-1]
    return torch.as_tensor(causal_mask(t, t, like=score))


def seen(score: Tensor) -> Tensor:
    """The scores that some query may see: (layers, heads, pairs)."""
    return score[..., visible(score)]


def _saturated(score: Tensor) -> Tensor:
    """Which rows are: (layers, heads, t − 1). The first sees one key only and is left out."""
    weight = score.masked_fill(~visible(score), -torch.inf).softmax(-1)
    return weight.amax(-1)[..., 1:] > LIMIT
