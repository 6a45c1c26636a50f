"""RoPE: do scores depend on the distance alone, and what happens when the two layouts meet?"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._attend import measure_worst
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import permute_rope_rows, rope

FAR = 4000
"""How far the same pair is moved along the sequence."""


@experiment
def run(seed: int = 0, head_dim: int = 64, pairs: int = 2000) -> dict[str, Any]:
    """`pairs` random queries and keys."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, pairs, 1, head_dim, generator=generator)
    first = torch.zeros(1, head_dim)
    first[0, 0] = 1
    turned = rope(first, torch.tensor([1]))[0]
    right = turned[0] - math.cos(1), turned[head_dim // 2] - math.sin(1)
    measure("position.rope_turn", max(abs(float(error)) for error in right) < 1e-6)
    slowest = rope(first.roll(head_dim // 2 - 1, -1), torch.tensor([1]))[0]  # the slowest pair, one position on
    measure("position.rope_slowest", float(1 / slowest[-1].asin()))

    measure("position.rope_far", FAR)
    norms = torch.stack([rope(q, torch.tensor([p])).norm(dim=-1) / q.norm(dim=-1) for p in (1, 100, FAR)])
    measure_worst("position.rope_norm_error", (norms - 1).abs().amax(0))
    near = _scores(q, k, 5, 0)
    measure_worst("position.rope_shift_error", (_scores(q, k, FAR + 5, FAR) - near).abs() / _sizes(q, k))
    measure_mean("position.rope_other_distance", ((_scores(q, k, 6, 0) - near).abs() / _sizes(q, k)).tolist())
    measure_mean("position.rope_other_side", ((_scores(q, k, 0, 5) - near).abs() / _sizes(q, k)).tolist())

    distances = torch.arange(512)
    ones = torch.ones(1, 1, head_dim)
    alike = _scores(ones, ones, distances, 0)[0] / head_dim
    among = _scores(q, k, distances, 0).std(0) / head_dim**0.5  # of random pairs, by distance
    measure("position.rope_alike_near", alike[1])
    measure("position.rope_alike_far", alike[256:].abs().max() < 0.5)
    measure("position.rope_random_least", among.min(), spread=_of_a_deviation(pairs))
    measure("position.rope_random_most", among.max(), spread=_of_a_deviation(pairs))
    return {"alike": alike, "random": among, **_layouts(generator, head_dim)}


def _scores(q: Tensor, k: Tensor, i: Any, j: Any, *, layouts: tuple[Any, Any] = ("half", "half")) -> Tensor:
    """Queries (n, 1, d) at each position i, keys (n, 1, d) at position j -> scores (n,), or (n, i)."""
    i = torch.as_tensor(i)
    turned_q = rope(q.expand(-1, i.numel(), -1), i.reshape(-1), layout=layouts[0])
    turned_k = rope(k, torch.as_tensor(j).reshape(1), layout=layouts[1])
    scores: Tensor = (turned_q * turned_k).sum(-1)
    return scores if i.ndim else scores[:, 0]


def _sizes(q: Tensor, k: Tensor) -> Tensor:
    """The largest score that a query and a key of these lengths can have, (n,)."""
    sizes: Tensor = (q.norm(dim=-1) * k.norm(dim=-1))[:, 0]
    return sizes


def _of_a_deviation(n: int) -> float:
    """Standard deviation of a standard deviation near 1 from n normal draws."""
    return float((2 * n) ** -0.5)


def _layouts(generator: torch.Generator, head_dim: int, heads: int = 40, t: int = 48) -> dict[str, Any]:
    """Scores of `heads` random heads, with weights made for interleaved pairs, in all combinations of layouts."""
    d_model = 2 * head_dim
    w_q, w_k = torch.randn(2, heads * head_dim, d_model, generator=generator) * d_model**-0.5
    x = torch.randn(t, d_model, generator=generator)

    def scores(w_q: Tensor, w_k: Tensor, layout_q: Any, layout_k: Any, start: int = 0) -> Tensor:  # (heads, t, t)
        places = torch.arange(start, start + t)
        q, k = ((x @ w.T).view(t, heads, head_dim).transpose(0, 1) for w in (w_q, w_k))
        turned: Tensor = rope(q, places, layout=layout_q) @ rope(k, places, layout=layout_k).mT
        scaled: Tensor = turned / head_dim**0.5
        return scaled

    right = scores(w_q, w_k, "interleaved", "interleaved")
    half_q, half_k = (permute_rope_rows(w, heads, to="half") for w in (w_q, w_k))
    converted = scores(half_q, half_k, "half", "half")
    measure_worst("position.layout_converted_error", (converted - right).abs().amax((1, 2)))
    wrong = scores(w_q, w_k, "half", "half")
    mixed = scores(w_q, w_k, "interleaved", "half")
    measure_mean("position.layout_wrong_likeness", _likeness(wrong, right).tolist())
    measure_mean("position.layout_mixed_likeness", _likeness(mixed, right).tolist())
    moved = scores(w_q, w_k, "half", "half", FAR) - wrong
    measure_worst("position.layout_wrong_shift", moved.abs().amax((1, 2)))
    moved = scores(w_q, w_k, "interleaved", "half", FAR) - mixed
    measure_mean("position.layout_mixed_shift", moved.abs().mean((1, 2)).tolist())
    sizes = [right.double().pow(2).mean().sqrt(), wrong.double().pow(2).mean().sqrt()]
    measure("position.layout_sizes_alike", abs(sizes[1] / sizes[0] - 1) < 0.1)
    return {"right": right[0], "wrong": wrong[0], "mixed": mixed[0]}


def _likeness(scores: Tensor, right: Tensor) -> Tensor:
    """The correlation of each head's scores with the right ones, (heads,), where query and key are far apart."""
    t = scores.shape[-1]
    far = (torch.arange(t)[:, None] - torch.arange(t)).abs() >= t // 4
    pairs = torch.stack([scores[:, far], right[:, far]])  # (2, heads, n)
    pairs = pairs - pairs.mean(-1, keepdim=True)
    return torch.cosine_similarity(pairs[0], pairs[1], dim=-1)
