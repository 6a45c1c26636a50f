"""Why do heads look at the first token, whatever it says, and which heads make it so?

The same text is read behind different first tokens. Then, one by one, the heads of the first two layers are switched
off, and it is looked at how much weight all heads above them still give to the first token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments import _smollm2 as shared
from attnbook.experiments.smollm2_heads import first_scores
from attnbook.measure import experiment, measure

EARLY = 2
"""Layers in which what marks the first token is made."""


@experiment
def run(seed: int = 0, half: int = 16) -> dict[str, Any]:
    """Look at the first place. Data: `size` (n_layers, 2), the length of x there and its mean elsewhere."""
    text = shared.text_tokens()
    (sink,) = first_scores(shared.attention_maps(text))
    measure("smollm2.sink_start", sink.mean())
    bare = first_scores(shared.attention_maps(text[:, 1:]))
    measure("smollm2.sink_bare", bare.mean())
    measure("smollm2.sink_second", shared.attention_maps(text)[..., 2:, 1].mean())

    seen: dict[tuple[int, str], Tensor] = {}
    shared.model().hidden(text, watch=lambda layer, name, x: seen.update({(layer, name): x}))
    layers = range(shared.model().config.n_layers)
    size = torch.stack([seen[i, "x"][0].norm(dim=-1) for i in layers])  # (layers, t)
    value = torch.stack([seen[i, "v"][0].norm(dim=-1).mean(0) for i in layers])
    measure("smollm2.sink_size", (size[:, 0] / size[:, 1:].mean(-1)).max(), unit="ratio")
    measure("smollm2.sink_value", (value[EARLY:, 0] / value[EARLY:, 1:].mean(-1)).median(), unit="ratio")

    tokens = shared.repeated(torch.Generator().manual_seed(seed), 1, half)
    left = torch.tensor([[_left(tokens, (i, h)) for h in range(sink.shape[1])] for i in range(EARLY)])
    (found,) = shared.best(-left, 1)
    whole = float(first_scores(shared.attention_maps(tokens))[:, EARLY:].mean())
    measure("smollm2.sink_maker_layer", found[0])
    measure("smollm2.sink_maker_head", found[1])
    measure("smollm2.sink_whole", whole)
    measure("smollm2.sink_lost", 1 - left[found] / whole, unit="ratio")
    rise = shared.loss(tokens, half + 2, [found]) - shared.loss(tokens, half + 2)
    measure("smollm2.sink_maker_rise", rise)
    return {"size": torch.stack([size[:, 0], size[:, 1:].mean(-1)], dim=1), "left": left, "whole": whole}


def _left(tokens: Tensor, head: tuple[int, int]) -> float:
    """The mean weight on the first token in the layers above, with one head off."""
    return float(first_scores(shared.attention_maps(tokens, [head]))[:, EARLY:].mean())
