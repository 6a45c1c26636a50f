"""How far back does a stack of layers with a window see? One token after another is changed, and the last one watched.

In one layer a token reaches window − 1 places ahead; what arrives there reaches as far again in the next layer. So
L layers reach L · (window − 1) + 1 tokens, the last one included. That some change arrives says nothing of its size,
which is measured too: as the length of the change of the last token's vector over the length of that vector.

The models are whole transformers of the package with random weights, in float64, so that no change is rounded away.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments.window_conventions import SPELLINGS
from attnbook.measure import experiment, measure, measure_mean
from attnbook.models import Transformer

VOCAB = 64
LONG, LONG_WINDOW = 131072, 4096


@experiment
def run(
    window: int = 8, depths: tuple[int, ...] = (1, 2, 4, 6), t: int = 52, models: int = 4, texts: int = 1, seed: int = 0
) -> dict[str, Any]:
    """`models` transformers of the greatest depth, one of each other. Data: `change` (t,), the mean by distance."""
    generator = torch.Generator().manual_seed(seed)
    found = {depth: reach(changes(fresh(depth, window, seed), 1, t, generator)) for depth in depths}
    for depth, tokens in found.items():
        measure(f"window.reach_{depth}", tokens)
    measure("window.reach_formula", all(n == depth * (window - 1) + 1 for depth, n in found.items()))
    wrong = SPELLINGS["at_most"](window, t)  # a window that counts the keys before the query
    measure("window.reach_one_more", reach(changes(fresh(depths[-1], None, seed), 1, t, generator, wrong)))

    measure("window.long", LONG, unit="token")
    measure("window.long_window", LONG_WINDOW)
    measure("window.layers_needed", layers_needed(LONG, LONG_WINDOW))

    deepest = depths[-1]
    many = [changes(fresh(deepest, window, seed + 1 + i), texts, t, generator).mean(0) for i in range(models)]
    change, end = torch.stack(many), deepest * (window - 1)  # (models, t), by distance from the last token
    others = change[:, 1:]  # what the token itself says reaches it without attention
    measure_mean("window.change_in_window", others[:, : window - 1].sum(1) / others.sum(1), unit="ratio")
    measure_mean("window.change_in_half", others[:, : end // 2].sum(1) / others.sum(1), unit="ratio")
    measure_mean("window.change_far_over_near", change[:, end] / change[:, 1], unit="ratio")
    return {"change": change.mean(0), "window": window}


def fresh(depth: int, window: int | None, seed: int) -> Transformer:
    """A causal transformer with RoPE that nobody trained, in float64."""
    return Transformer(VOCAB, d_model=32, n_layers=depth, n_heads=2, window=window, seed=seed).double()


@torch.no_grad()
def changes(model: Transformer, texts: int, t: int, generator: torch.Generator, mask: Tensor | None = None) -> Tensor:
    """How much the last token's vector changes when the token so many places before it is another one: (texts, t)."""
    seen: list[Tensor] = []
    handle = model.norm.register_forward_hook(lambda module, given, out: seen.append(out[:, -1]))
    try:
        for _ in range(texts):
            text = torch.randint(VOCAB, (1, t), generator=generator)
            other = text.repeat(t, 1)
            shift = torch.randint(1, VOCAB, (t,), generator=generator)
            other[torch.arange(t), torch.arange(t)] = (text[0] + shift) % VOCAB  # in row j, token j is another
            model(torch.cat([text, other]), mask=mask)
    finally:
        handle.remove()
    last = torch.stack(seen)  # (texts, 1 + t, d_model)
    change = (last[:, 1:] - last[:, :1]).norm(dim=-1) / last[:, :1].norm(dim=-1)
    return torch.flip(change, (1,))


def layers_needed(t: int, window: int) -> int:
    """The fewest layers with which the last of t tokens can depend on the first."""
    return -(-(t - 1) // (window - 1))


def reach(change: Tensor) -> int:
    """The tokens, itself included, up to the farthest that changes anything: change (texts, t) by distance."""
    return int((change > 0).any(0).nonzero().max()) + 1
