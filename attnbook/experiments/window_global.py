"""A few tokens that see everyone and that everyone sees: how far do two layers see then, and what does it cost?

Then what counts as cheap: pairs that are spread one by one save pairs, but hardly a tile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._window_text import mask as window_and_kept
from attnbook.experiments.window_reach import VOCAB, changes, reach
from attnbook.measure import experiment, measure
from attnbook.models import Transformer


@experiment
def run(side: int = 4, t: int = 60, long: int = 4096, tile: int = 64, share: int = 64, seed: int = 0) -> dict[str, Any]:
    """Encoders of 1 and 2 layers that see `side` tokens to either side. Data: `local`, `whole` (t, t), the masks."""
    local, whole = around(t, side), with_global(around(t, side), (0,))
    for layers in (1, 2):
        for name, mask in (("local", local), ("global", whole)):
            measure(f"window.{name}_{layers}", seen_by_last(layers, mask, seed))
    measure("window.global_tokens", t)
    big = around(long, side=128)
    measure("window.local_pairs", int(big.sum()))
    measure("window.global_pairs", int(with_global(big, (0,)).sum()))
    measure("window.global_pairs_all", big.numel())

    generator = torch.Generator().manual_seed(seed)
    causal = [Transformer(VOCAB, d_model=32, n_layers=2, n_heads=2, seed=seed).double() for _ in range(2)]
    kept = changes(causal[0], 1, t, generator, window_and_kept(t, side + 1, (0,)))
    measure("window.causal_first_kept", int((kept > 0).any(0).sum()))
    measure("window.causal_first_reach", reach(kept[:, :-1]))

    scattered = torch.rand(long, long, generator=generator) < 1 / share
    blocks = (torch.rand(long // tile, long // tile, generator=generator) < 1 / share).repeat_interleave(tile, 0)
    blocks = blocks.repeat_interleave(tile, 1)
    for name, mask in (("scattered", scattered), ("blocks", blocks)):
        touched = mask.view(long // tile, tile, long // tile, tile).any(3).any(1)
        measure(f"window.{name}_pairs", mask.float().mean(), unit="ratio")
        measure(f"window.{name}_tiles", touched.float().mean(), unit="ratio")
    return {"local": local, "whole": whole}


def around(t: int, side: int) -> Tensor:
    """Each token sees itself and `side` tokens to either side: booleans (t, t)."""
    place = torch.arange(t)
    return (place[:, None] - place).abs() <= side


def with_global(mask: Tensor, tokens: tuple[int, ...]) -> Tensor:
    """The same, and these tokens see all and are seen by all."""
    mask = mask.clone()
    mask[list(tokens)] = True
    mask[:, list(tokens)] = True
    return mask


def seen_by_last(layers: int, mask: Tensor, seed: int) -> int:
    """How many tokens, itself included, the last token's vector depends on in an encoder of so many layers."""
    model = Transformer(VOCAB, d_model=32, n_layers=layers, n_heads=2, is_causal=False, seed=seed).double()
    change = changes(model, 1, len(mask), torch.Generator().manual_seed(seed), mask)
    return int((change > 0).any(0).sum())
