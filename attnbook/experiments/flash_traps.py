"""Mistakes of a tiled attention that raise no error, and what shows them.

`walk` is the loop of the chapter with a mistake to choose: the rescaling left out, or done to one of the two sums only;
no care for −inf − (−inf), where a tile is hidden from a row; the last tile of each query's keys skipped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook import tiled
from attnbook.experiments._attend import attend
from attnbook.experiments.flash_exact import draw, off
from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import window_mask

MISTAKES = ("", "no rescale", "total only", "no care", "last tile skipped")


@experiment
def run(n: int = 256, d: int = 16, tile: int = 32, window: int = 48, repeats: int = 60, seed: int = 0) -> None:
    """One head of n standard normal queries, keys and values in float64, `repeats` times."""
    q, k, v = (x[:, 0] for x in draw(repeats, n, d, seed))
    truth = _truth(q, k, v)
    measure("flash.walk_error", (walk(q, k, v, tile) - truth).abs().max())
    wrong = walk(q, k, v, tile, mistake="no rescale")
    measure_mean("flash.no_rescale_off", off(wrong, truth), unit="ratio")
    right = ((wrong - truth).abs().amax(-1) < 1e-9).double().mean(-1)
    measure_mean("flash.no_rescale_right_rows", right, unit="ratio")
    measure("flash.no_rescale_is_silent", bool(wrong.isfinite().all()))
    few = slice(tile)
    one_tile = [walk(q[:, few], k[:, few], v[:, few], tile, mistake=mistake) for mistake in ("", "no rescale")]
    measure("flash.one_tile_hides_it", torch.equal(*one_tile))
    half = walk(q, k, v, tile, mistake="total only")
    measure_mean("flash.total_only_off", off(half, truth), unit="ratio")
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    measure("flash.causal_alone_is_safe", bool(walk(q, k, v, tile, seen=causal, mistake="no care").isfinite().all()))
    _measure_hidden(q[:1], k[:1], v[:1], tile, window)
    lost = walk(q, k, v, tile, seen=causal, mistake="last tile skipped")
    measure_mean("flash.skipped_off", off(lost, _truth(q, k, v, causal)), unit="ratio")


def walk(q: Tensor, k: Tensor, v: Tensor, tile: int, *, seen: Tensor | None = None, mistake: str = "") -> Tensor:
    """Attention over tiles of keys, with a mistake: q, k, v (b, n, d), seen (n, n) True = may attend -> (b, n, d).

    Raises ValueError for a mistake that is none of `MISTAKES`.
    """
    if mistake not in MISTAKES:
        raise ValueError(f"mistake is {mistake!r}: expected one of {', '.join(map(repr, MISTAKES))}")
    top = q.new_full((*q.shape[:-1], 1), -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros_like(v)
    for start in range(0, k.shape[1], tile):
        keys = slice(start, start + tile)
        score = q @ k[:, keys].mT / q.shape[-1] ** 0.5
        if seen is not None:
            score = score.masked_fill(~seen[:, keys], -torch.inf)
        if mistake == "last tile skipped":  # these queries' walk ends one tile too early: the diagonal is lost
            score[:, keys] = -torch.inf
        new = torch.maximum(top, score.amax(-1, keepdim=True))
        base = new if mistake == "no care" else new.masked_fill(new == -torch.inf, 0.0)
        shrink, weight = torch.exp(top - base), torch.exp(score - base)
        if mistake == "no rescale":
            shrink = torch.ones_like(shrink)
        total = total * shrink + weight.sum(-1, keepdim=True)
        out = out * (torch.ones_like(shrink) if mistake == "total only" else shrink) + weight @ v[:, keys]
        top = new
    return out / total if mistake == "no care" else out / total.masked_fill(total == 0, 1.0)


def _measure_hidden(q: Tensor, k: Tensor, v: Tensor, tile: int, window: int) -> None:
    """A window hides whole tiles from late rows: a walk over all tiles meets them first."""
    n = q.shape[1]
    seen = window_mask(n, n, window, like=q)
    assert isinstance(seen, Tensor)
    careless = walk(q, k, v, tile, seen=seen, mistake="no care")
    measure("flash.hidden_tile_nan", careless.isnan().any(-1).double().mean(), unit="ratio")
    rows = (torch.arange(n) - window + 1) // tile > 0  # their first visible key lies behind the first tile
    measure("flash.hidden_tile_is_why", torch.equal(careless.isnan().any(-1)[0], rows))
    truth = _truth(q, k, v, seen)
    careful = walk(q, k, v, tile, seen=seen)
    out = tiled.attention(q[:, None], k[:, None], v[:, None], is_causal=True, window=window, tile_q=tile, tile_k=tile)
    measure("flash.hidden_tile_error", torch.stack([careful - truth, out[:, 0] - truth]).abs().max())


def _truth(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None) -> Tensor:
    """The reference, for (b, n, d)."""
    return attend(q[:, None], k[:, None], v[:, None], mask=seen)[:, 0]
