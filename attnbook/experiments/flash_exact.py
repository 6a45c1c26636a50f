"""Is attention in tiles the same attention? Its error against float64, beside the error of the plain calculation.

Truth is the reference in float64, given the very numbers that the shorter floats hold. What is compared is the length
of the error over the length of the truth, one draw of q, k, v at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attnbook import tiled
from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure, measure_mean

TILES = ((1, 1), (5, 7), (16, 16), (1000, 3), (3, 1000))
"""Queries and keys of a tile: the smallest, primes, the usual, and more than there are."""

Rows = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@experiment
def run(n: int = 512, d: int = 64, tile: int = 64, repeats: int = 10, seed: int = 0) -> None:
    """One head of n standard normal queries, keys and values, `repeats` times; tiles of `tile` queries and keys."""
    q, k, v = draw(repeats, n, d, seed)
    _measure_float64(*(x[:1, :, :37] for x in (q, k, v)))
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        short = [x.to(dtype) for x in (q, k, v)]
        truth = attend(*(x.double() for x in short))
        errors = [off(plain(*short), truth), off(tiled.attention(*short, tile_q=tile, tile_k=tile), truth)]
        measure_mean(f"flash.plain_{name}", errors[0], unit="ratio")
        measure_mean(f"flash.tiled_{name}", errors[1], unit="ratio")
        measure_mean(f"flash.tiled_over_plain_{name}", errors[1] / errors[0], unit="ratio")
        if dtype == torch.bfloat16:  # the same, with the steps between in float32
            careful = plain(*(x.float() for x in short)).to(dtype)
            measure_mean("flash.careful_bfloat16", off(careful, truth), unit="ratio")
    single = [x[0].float()[None] for x in (q, k, v)]
    one, other, again = (tiled.attention(*single, tile_k=columns) for columns in (tile, tile // 2, tile))
    measure("flash.tiles_change_bits", not torch.equal(one, other))
    measure("flash.same_tiles_same_bits", torch.equal(one, again))
    counted = [operations(call, q[:1], k[:1], v[:1]) for call in (plain, tiled.attention)]
    measure("flash.operations", counted[0])
    measure("flash.operations_same", counted[0] == counted[1])


def draw(repeats: int, n: int, d: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Standard normal q, k, v (repeats, 1, n, d) in float64."""
    q, k, v = torch.randn(3, repeats, 1, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return q, k, v


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The three lines in torch, every step in the dtype of q: (b, h, t, d) each -> (b, h, t, d)."""
    out: Tensor = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
    return out


def off(x: Tensor, truth: Tensor) -> Tensor:
    """The length of the error over that of the truth, for each along the first axis."""
    error: Tensor = (x.double() - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
    return error


def operations(call: Callable[[Tensor, Tensor, Tensor], object], q: Tensor, k: Tensor, v: Tensor) -> int:
    """Multiplications and additions in the matrix products that the call carries out, as torch counts them."""
    with FlopCounterMode(display=False) as seen:
        call(q, k, v)
    return int(seen.get_total_flops())


def compare(rows: Rows, n: int = 203, d: int = 16, seed: int = 0) -> dict[str, float]:
    """How far a function of one head, q, k, v (n, d) -> out (n, d) and lse (n, 1), is from two others in float64.

    Keys: `reference`, `tiled` (both for out) and `lse`; the largest absolute difference each.
    """
    q, k, v = draw(1, n, d, seed)
    out, lse = rows(q[0, 0], k[0, 0], v[0, 0])
    other, other_lse = tiled.attention(q, k, v, return_lse=True)
    return {
        "reference": float((out - attend(q, k, v)).abs().max()),
        "tiled": float((out - other).abs().max()),
        "lse": float((lse[:, 0] - other_lse).abs().max()),
    }


def _measure_float64(q: Tensor, k: Tensor, v: Tensor) -> None:
    """The tiles of the package against the reference, for tiles of any size, with and without a causal mask."""
    worst = [
        (tiled.attention(q, k, v, is_causal=causal, tile_q=a, tile_k=b) - attend(q, k, v, is_causal=causal)).abs().max()
        for a, b in TILES
        for causal in (False, True)
    ]
    measure("flash.float64_error", torch.stack(worst).max())
