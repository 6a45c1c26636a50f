"""How many keys does "window 4" show? One number, written in the ways in which libraries and code write it.

Every row is a mask that really is made, and the keys of a query far from the beginning are counted. torch's
FlexAttention makes its own from a rule; ours is read off the weights of our attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_mask

from attnbook.experiments._attend import attend, weights
from attnbook.measure import experiment, measure, measure_mean


@experiment
def run(window: int = 4, t: int = 16, d: int = 16, repeats: int = 20, seed: int = 0) -> dict[str, Any]:
    """Count for `t` tokens; then what one key more does to random inputs. Data: `keys`, the count by spelling."""
    found = {name: int(make(window, t)[-1].sum()) for name, make in SPELLINGS.items()}
    for name, keys in found.items():
        measure(f"window.keys_{name}", keys)
    alike = torch.equal(SPELLINGS["band"](window, t), SPELLINGS["ours"](window, t))
    measure("window.band_is_ours", alike)
    one_more = torch.equal(SPELLINGS["at_most"](window - 1, t), SPELLINGS["ours"](window, t))
    measure("window.one_less_is_ours", one_more)

    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, repeats, 1, t, d, generator=generator, dtype=torch.float64)
    right, wrong = (attend(q, k, v, is_causal=True, window=w)[:, 0, window:] for w in (window, window + 1))
    measure_mean("window.one_more_off", (wrong - right).norm(dim=(1, 2)) / right.norm(dim=(1, 2)), unit="ratio")
    return {"keys": found}


def _ours(window: int, t: int) -> Tensor:
    q = torch.zeros(1, 1, t, 1)
    return weights(q, q, is_causal=True, window=window)[0, 0] > 0


def _band(window: int, t: int) -> Tensor:
    return torch.ones(t, t, dtype=torch.bool).tril().triu(1 - window)


def _diagonal(window: int, t: int) -> Tensor:
    return torch.ones(t, t, dtype=torch.bool).tril().triu(-window)


def _at_most(window: int, t: int) -> Tensor:
    def rule(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (i - j <= window)

    return create_mask(rule, None, None, t, t, device="cpu")[0, 0]


SPELLINGS: dict[str, Callable[[int, int], Tensor]] = {
    "ours": _ours, "band": _band, "diagonal": _diagonal, "at_most": _at_most,
}  # fmt: skip
"""Name -> (window, t) -> booleans (t, t): what a spelling of a causal window shows."""
