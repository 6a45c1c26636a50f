"""Positions counted from the wrong place, and put where they don't belong: what changes, with each encoding?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._attend import attend, measure_worst
from attnbook.measure import Measurement, experiment, measure_mean
from attnbook.models import Transformer, attention_weights
from attnbook.models.transformer import Positions
from attnbook.reference import KVCache, positions_from_mask, rope

ENCODED: tuple[Positions, ...] = ("sinusoidal", "learned", "rope", "alibi")
VOCAB = 11
TOKENS = 13
FILLING = 3
MOVED = 100


@experiment
def run(seed: int = 0, models: int = 12) -> dict[str, Any]:
    """`models` untrained causal models of two layers for each encoding, and random tokens."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCAB, (models, 1, TOKENS), generator=generator)
    places = torch.arange(TOKENS)
    for name in ENCODED:
        built = [_model(name, seed + i) for i in range(models)]
        pairs = list(zip(built, tokens, strict=True))
        _measure(f"position.{name}_moved", [_moved_weights(model, x, places) for model, x in pairs])
        _measure(f"position.{name}_cached", [_decoded(model, x, restart=False) for model, x in pairs])
        _measure(f"position.{name}_restarted", [_decoded(model, x, restart=True) for model, x in pairs])
        _measure(f"position.{name}_padded", [_padded(model, x, counted=True) for model, x in pairs])
        _measure(f"position.{name}_padded_wrong", [_padded(model, x, counted=False) for model, x in pairs])
    for name in ("none", *ENCODED):
        alike = [_places_of_one_token(_model(name, seed + i)) for i in range(models)]
        _measure(f"position.{name}_repeated", alike)
    _turned_values(generator, models)
    return {}


def _measure(id: str, shares: list[Tensor]) -> Measurement:
    """The mean, or the largest where all of them are no more than rounding."""
    shares_ = torch.stack(shares)
    return measure_worst(id, shares_) if shares_.max() < 1e-5 else measure_mean(id, shares)


def _model(positions: Positions, seed: int) -> Transformer:
    table = MOVED + TOKENS if positions == "learned" else None
    return Transformer(VOCAB, d_model=32, positions=positions, max_positions=table, seed=seed).eval()


def _share(changed: Tensor, out: Tensor) -> Tensor:
    """Difference over size."""
    share: Tensor = (changed - out).norm() / out.norm()
    return share


@torch.no_grad()
def _moved_weights(model: Transformer, tokens: Tensor, places: Tensor) -> Tensor:
    """How far any weight of the first layer moves when the sequence begins at MOVED instead of 0."""
    here = attention_weights(model, tokens, positions=places)[0]
    return (attention_weights(model, tokens, positions=places + MOVED)[0] - here).abs().max()


@torch.no_grad()
def _decoded(model: Transformer, tokens: Tensor, *, restart: bool) -> Tensor:
    """The last token's logits with a cache, token by token, against one call; `restart`: each token at position 0."""
    caches = [KVCache() for _ in model.blocks]
    for i in range(TOKENS):
        positions = torch.zeros(1, dtype=torch.long) if restart else None
        last = model(tokens[:, i : i + 1], caches=caches, positions=positions)
    return _share(last[:, -1], model(tokens)[:, -1])


@torch.no_grad()
def _padded(model: Transformer, tokens: Tensor, *, counted: bool) -> Tensor:
    """Logits behind FILLING tokens of filling, against those of the tokens alone.

    `counted`: positions from the mask; otherwise 0, 1, 2 … with the filling.
    """
    mask = torch.ones(1, FILLING + TOKENS, dtype=torch.bool)
    mask[:, :FILLING] = False
    row = torch.cat([tokens[:, :FILLING], tokens], dim=1)
    positions = positions_from_mask(mask) if counted else None
    out = model(row, mask=mask[:, None, None], positions=positions)[:, FILLING:]
    return _share(out, model(tokens))


@torch.no_grad()
def _places_of_one_token(model: Transformer) -> Tensor:
    """One token again and again: how different is what the model says at the places, from that at the first?"""
    out = model(torch.zeros(1, TOKENS, dtype=torch.long))
    return _share(out, out[:, :1].expand_as(out))


def _turned_values(generator: torch.Generator, repeats: int) -> None:
    """A sequence moved by MOVED: what happens to the output where v stays as it is, and where v is turned, too."""
    q, k, v = torch.randn(3, repeats, 1, TOKENS, 32, generator=generator)
    for name in ("values_kept", "values_turned"):
        outs = []
        for start in (0, MOVED):
            places = torch.arange(start, start + TOKENS)
            values = rope(v, places) if name == "values_turned" else v
            outs.append(attend(rope(q, places), rope(k, places), values, is_causal=True))
        _measure(f"position.{name}", [_share(b, a) for a, b in zip(*outs, strict=True)])
