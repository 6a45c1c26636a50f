"""Queries from one sequence, keys and values from another: who decides the length, and what the order of pairs does.

The example reads a word backwards with no trained part: position i of the target asks for the last position but i, the
source answers with its letters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@experiment
def run(word: str = "WEIGHTS", scale: float = 8.0, seed: int = 0, repeats: int = 200) -> dict[str, Any]:
    """The word backwards; then normal q (b, h, 5, d) and k, v (b, h, 7, d): lengths, order, swapped arguments."""
    t = len(word)
    place = torch.eye(t)  # an orthonormal key for each position of the source
    letters = torch.nn.functional.one_hot(torch.tensor([ALPHABET.index(x) for x in word]), len(ALPHABET)).float()
    weight = _one_head(place.flip(0), place, torch.eye(t), scale)
    out = _one_head(place.flip(0), place, letters, scale)
    written = "".join(ALPHABET[i] for i in out.argmax(-1).tolist())
    measure("names.reads_backwards", written == word[::-1])
    measure("names.reads_backwards_weight", weight[0, -1])

    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(repeats, 2, 5, 16, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, repeats, 2, 7, 16, generator=generator, dtype=torch.float64)
    out = attention(q, k, v)
    measure("names.cross_out_rows", out.shape[-2])
    measure("names.cross_keys", k.shape[-2])
    measure("names.cross_torch_error", (out - scaled_dot_product_attention(q, k, v)).abs().max())
    turn = torch.randperm(7, generator=generator)
    measure("names.pairs_error", (attention(q, k[:, :, turn], v[:, :, turn]) - out).abs().max())
    # Every value moves on by one, so that no pair stays together; a random order may leave many as they were.
    measure_mean("names.values_only_change", _change(attention(q, k, v.roll(1, dims=2)), out), unit="ratio")
    measure_mean("names.swapped_change", _change(attention(q, v, k), out), unit="ratio")
    return {"word": word, "written": written, "weight": weight}


def _one_head(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    out = attention(q[None, None], k[None, None], v[None, None], scale=scale)
    assert isinstance(out, Tensor)
    return out[0, 0]


def _change(other: Tensor, out: Tensor) -> list[float]:
    """For each draw, the size of the difference, out's own size being 1."""
    return [float(x) for x in (other - out).flatten(1).norm(dim=1) / out.flatten(1).norm(dim=1)]
