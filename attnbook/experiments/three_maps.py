"""What do three linear maps of one input buy over using the input itself three times?

With one map for queries and keys the scores are symmetric, and each position fits itself best. Two maps are free of
both. The maps are random: what is measured is what the form of the calculation brings, before any training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._attend import weights
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import three_lines


@experiment
def run(seed: int = 0, repeats: int = 1000, tokens: int = 20, d_model: int = 64, head_dim: int = 64) -> dict[str, Any]:
    """Normal inputs x (t, d_model); weight matrices of variance 1/d_model, so that q, k, v have variance 1."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(repeats, tokens, d_model, generator=generator)
    w_q, w_k, w_v = torch.randn(3, repeats, d_model, head_dim, generator=generator) / d_model**0.5
    q, k, v = x @ w_q, x @ w_k, x @ w_v

    measure("names.parameters", sum(w[0].numel() for w in (w_q, w_k, w_v)))
    measure_mean("names.query_variance", q.var(dim=(1, 2)).tolist())
    one_map, two_maps = _weights(q, q), _weights(q, k)
    measure_mean("names.self_top_one_map", _own_is_top(one_map), unit="ratio")
    measure_mean("names.self_top_two_maps", _own_is_top(two_maps), unit="ratio")
    measure_mean("names.self_weight_one_map", one_map.diagonal(dim1=1, dim2=2).mean(-1).tolist())
    measure("names.one_map_symmetric", _symmetric((q @ q.mT).double()))
    measure("names.two_maps_asymmetric", not _symmetric((q @ k.mT).double()))

    others = ~torch.eye(tokens, dtype=torch.bool)
    hidden = weights(q[:, None], q[:, None], mask=others)
    alone = bool((hidden[..., ~others] == 0).all())
    measure("names.own_hidden", alone and torch.allclose(hidden.sum(-1), torch.ones(repeats, 1, tokens)))
    mixed_first = three_lines.attention(q, k, x) @ w_v
    measure("names.linear_error", (mixed_first - three_lines.attention(q, k, v)).abs().max())
    return {"one_map": one_map[0], "two_maps": two_maps[0]}


def _weights(q: Tensor, k: Tensor) -> Tensor:
    weight = three_lines.attention(q, k, torch.eye(k.shape[-2]))
    assert isinstance(weight, Tensor)
    return weight


def _own_is_top(weight: Tensor) -> list[float]:
    """For each draw, the share of positions whose largest weight is on themselves."""
    own = torch.arange(weight.shape[-1])
    return [float(share) for share in (weight.argmax(-1) == own).double().mean(-1)]


def _symmetric(score: Tensor) -> bool:
    return torch.allclose(score, score.mT, rtol=0, atol=1e-4)
