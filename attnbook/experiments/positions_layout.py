"""A trained model whose file has RoPE's pairs side by side, read as if they lay half a head apart: does it still write?

The rows of W_q and W_k are reordered, and RoPE goes on pairing neighbours: the mistake of who loads the weights of one
layout into the code of the other. No shape is wrong, and no error is raised.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import torch

from attnbook.experiments import _smollm2 as trained
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models import SmolLM2
from attnbook.models.weights import Layer
from attnbook.reference import permute_rope_rows


@experiment
def run(seed: int = 0, draws: int = 6, half: int = 20) -> dict[str, Any]:
    """The mean loss on a short English text and on the second half of repeated random tokens: right, and confused."""
    tokens = trained.text_tokens()
    right = _loss(trained.model(), tokens)
    confused = _loss(_reordered("half"), tokens)
    measure("position.model_tokens", tokens.shape[1] - 1)
    measure("position.model_loss", right)
    measure("position.model_confused_loss", confused)
    measure("position.model_chance", math.log(trained.model().config.vocab))
    twice = trained.repeated(torch.Generator().manual_seed(seed), draws, half)
    for name, model in (("", trained.model()), ("confused_", _reordered("half"))):
        again = [_loss(model, row[None], begin=half + 2) for row in twice]
        measure_mean(f"position.model_{name}repeated_loss", again)
    return {}


@torch.no_grad()
def _loss(model: SmolLM2, tokens: torch.Tensor, begin: int = 1) -> float:
    """Mean −log p of the tokens from place `begin` on, each from those before it, in nats: tokens (1, t)."""
    logits = model(tokens)[:, begin - 1 : -1]
    return float((logits.logsumexp(-1) - logits.gather(-1, tokens[:, begin:, None])[..., 0]).mean())


def _reordered(to: Any) -> SmolLM2:
    """The same model with the rows of W_q and W_k in another layout's order; its code does not know."""
    model = copy.copy(trained.model())
    c = model.config

    def reorder(layer: Layer) -> Layer:
        q, k, v = layer.qkv.mT.tensor_split(layer.ends)
        rows = [permute_rope_rows(q, c.n_heads, to=to), permute_rope_rows(k, c.n_kv_heads, to=to), v]
        return dataclasses.replace(layer, qkv=torch.cat(rows).mT)

    model.layers = tuple(reorder(layer) for layer in model.layers)
    return model
