"""A sink that is a number and no token: what does it do to a row, and how often does it count when rows are merged?

`sinks` of `attnbook.attention` is one more score in each row, without a value. Whoever calculates a row in parts must
count it in one of them: in none, the weights are too large; in each, too small.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook import tiled
from attnbook.api.attention import attention
from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import merge, window_mask


@experiment
def run(window: int = 8, t: int = 48, d: int = 16, repeats: int = 20, seed: int = 0) -> None:
    """Random q, k, v in float64 under a window, with a sink of 1; then scores that all fit or none."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, repeats, 1, t, d, generator=generator, dtype=torch.float64)
    sinks = torch.ones(1, dtype=torch.float64)
    options: dict[str, Any] = {"is_causal": True, "window": window}
    right = attend(q, k, v, sinks=sinks, **options)

    # The same as a key whose score is 1 for every query, whose value is 0 and that every query sees.
    scale = 1 / math.sqrt(d)
    ones = torch.full((repeats, 1, t, 1), 1 / scale, dtype=q.dtype)
    one_more_q = torch.cat([q, ones], -1)
    first = torch.cat([torch.zeros(repeats, 1, 1, d, dtype=q.dtype), ones[:, :, :1] * scale], -1)
    one_more_k = torch.cat([first, torch.cat([k, 0 * ones], -1)], 2)
    one_more_v = torch.cat([0 * v[:, :, :1], v], 2)
    seen = torch.cat([torch.ones(t, 1, dtype=torch.bool), torch.as_tensor(window_mask(t, t, window, like=q))], 1)
    by_key = attend(one_more_q, one_more_k, one_more_v, mask=seen, scale=scale)
    measure("window.sink_as_a_key", (by_key - right).abs().max())
    in_tiles = tiled.attention(q, k, v, sinks=sinks, tile_q=4, tile_k=4, **options)  # three tiles of keys a row
    in_band = attention(q, k, v, sinks=sinks, impl="tiled", **options)
    measure("window.sink_in_tiles", max((out - right).abs().max() for out in (in_tiles, in_band)))
    half = t // 2
    measure("window.sink_merged", (merged(q, k, v, half, sinks, None) - attend(q, k, v, sinks=sinks)).abs().max())
    length = attend(q, k, v, sinks=sinks).flatten(1).norm(dim=1)
    longer, shorter = (merged(q, k, v, half, x, x).flatten(1).norm(dim=1) for x in (None, sinks))
    measure_mean("window.sink_forgotten", longer / length - 1, unit="ratio")
    measure_mean("window.sink_twice", 1 - shorter / length, unit="ratio")

    for name, score in (("fits", 4.0), ("misfits", -4.0)):
        alike = torch.full((1, 1, 1, d), score, dtype=q.dtype)  # every score is score · d / √d
        keys, values = torch.ones(1, 1, window, d, dtype=q.dtype), torch.ones(1, 1, window, 1, dtype=q.dtype)
        measure(f"window.sink_{name}", attend(alike, keys, values, sinks=0 * sinks).sum())
        measure(f"window.no_sink_{name}", attend(alike, keys, values).sum())


def merged(q: Tensor, k: Tensor, v: Tensor, half: int, first: Tensor | None, second: Tensor | None) -> Tensor:
    """Attention over all keys from two halves of them, each with the sinks given for it, or none."""
    parts = [
        attention(q, k[:, :, part], v[:, :, part], sinks=sinks, return_lse=True, impl="reference")
        for part, sinks in ((slice(half), first), (slice(half, None), second))
    ]
    out, _ = merge(*parts[0], *parts[1])
    assert isinstance(out, Tensor)
    return out
