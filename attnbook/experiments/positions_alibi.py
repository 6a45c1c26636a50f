"""ALiBi: which slope has each head, how far does it look, and when do its two conventions agree?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.experiments._attend import weights
from attnbook.measure import experiment, measure
from attnbook.reference import alibi_bias, alibi_slopes, softmax

TWELVE = 12


@experiment
def run(seed: int = 0, heads: int = 8, tokens: int = 1024) -> dict[str, Any]:
    """The slopes of 8 and of 12 heads; what a query at the end sees where all scores are equal."""
    slopes = torch.as_tensor(alibi_slopes(heads))
    measure("position.alibi_keys", tokens)
    measure("position.alibi_first", slopes[0], unit="ratio")
    measure("position.alibi_last", slopes[-1], unit="ratio")
    measure("position.alibi_halves", bool((slopes[1:] / slopes[:-1] == 0.5).all()))

    twelve = torch.as_tensor(alibi_slopes(TWELVE))
    measure("position.alibi_twelve_begin", torch.equal(twelve[:heads], slopes))
    between = (slopes[: TWELVE - heads] * slopes[: TWELVE - heads] * 2).sqrt()  # of a slope and the one before it
    measure("position.alibi_twelve_between", torch.allclose(twelve[heads:], between, rtol=1e-12))
    straight = torch.tensor([2 ** (-8 * i / TWELVE) for i in range(1, TWELVE + 1)], dtype=torch.float64)
    measure("position.alibi_straight_ratio", (twelve.sort(descending=True).values / straight).max(), unit="ratio")
    measure("position.alibi_straight_shared", int(torch.isclose(twelve[:, None], straight).sum()))

    equal = torch.zeros(1, heads, tokens, 1, dtype=torch.float64)
    last = weights(equal[:, :, -1:], equal, alibi_slopes=slopes, is_causal=True)[0, :, 0].flip(-1)  # by distance
    measure("position.alibi_step", last[0, 1] / last[0, 0], unit="ratio")
    near = (last.cumsum(-1) < 0.9).sum(-1) + 1  # how many of the nearest keys share nine tenths of the weight
    measure("position.alibi_near_first", near[0])
    measure("position.alibi_near_last", near[-1])

    _conventions(seed, slopes.float())
    return {"weights": last, "slopes": slopes, "twelve": twelve}


def _conventions(seed: int, slopes: Tensor, t: int = 13) -> None:
    """−m·distance against +m·position of the key, on random scores, with a causal mask and without."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, len(slopes), t, 16, generator=generator)
    two = {name: alibi_bias(slopes, t, convention=name) for name in ("distance", "position")}
    for name, is_causal in (("causal", True), ("open", False)):
        one, other = (weights(q, k, mask=bias.expand(-1, t, -1), is_causal=is_causal) for bias in two.values())
        measure(f"position.alibi_{name}_difference", (one - other).abs().max())
        if is_causal:
            option = weights(q, k, alibi_slopes=slopes, is_causal=True)
            measure("position.alibi_option_error", (one - option).abs().max())
    measure(
        "position.alibi_open_future", _share_of_the_last(two["position"], t) > _share_of_the_last(two["distance"], t)
    )


def _share_of_the_last(bias: Tensor, t: int) -> float:
    """What the first query of equal scores gives the last key, in the head with the largest slope."""
    return float(softmax(bias.expand(-1, t, -1)[0, 0])[-1])
