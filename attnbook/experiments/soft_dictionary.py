"""Is attention a dictionary? For orthonormal keys and a large scale it returns the stored value; for scale 0, the mean.

And where the likeness ends: a query that fits no key gets the mean and not an error, two equal keys share, and keys
that are only nearly orthogonal get in one another's way as they become many.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import attention

SCALES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@experiment
def run(seed: int = 0, entries: int = 8, head_dim: int = 16, repeats: int = 20) -> dict[str, Any]:
    """`entries` orthonormal keys, values of variance 1, each key asked for; then what breaks the likeness."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(head_dim, head_dim, generator=generator, dtype=torch.float64)).Q
    k, v = basis[:entries], torch.randn(entries, 5, generator=generator, dtype=torch.float64)
    measure("names.entries", entries)
    for scale in SCALES[1:5]:
        measure(f"names.own_weight_{scale:.0f}", _own(k, k, scale)[0])
    errors = [float((_look_up(k, k, v, scale) - v).abs().max()) for scale in SCALES]
    measure("names.lookup_error_8", errors[SCALES.index(8.0)] / float(v.abs().max()), unit="ratio")
    measure("names.lookup_error_16", errors[SCALES.index(16.0)] / float(v.abs().max()), unit="ratio")
    measure("names.lookup_exact_32_float32", torch.equal(_look_up(k.float(), k.float(), v.float(), 32.0), v.float()))
    measure("names.mean_error", (_look_up(k, k, v, 0.0) - v.mean(0)).abs().max())

    stranger = basis[entries:]  # orthogonal to every key
    measure("names.stranger_error", (_look_up(stranger, k, v, 32.0) - v.mean(0)).abs().max())
    twins = torch.cat([k, k[:1]])
    both = _look_up(k[:1], twins, torch.cat([v, v[1:2]]), 32.0)[0]
    measure("names.twins_error", (both - (v[0] + v[1]) / 2).abs().max())
    _null_entry(k, v, stranger)
    wider = _scale_for_99(torch.eye(1001)) - _scale_for_99(torch.eye(101))
    measure("names.tenfold_scale", wider)
    turned = torch.randperm(entries, generator=generator)
    measure("names.order_error", (_look_up(k, k[turned], v[turned], 1.0) - _look_up(k, k, v, 1.0)).abs().max())
    return {"scales": SCALES, "errors": errors, "crowd": _crowds(generator, repeats)}


def _null_entry(k: Tensor, v: Tensor, stranger: Tensor, score: float = 8.0) -> None:
    """One more entry, of value 0 and of the same middling score for every query: an answer for "nothing fits"."""
    with_null = torch.cat([k, k[:1] * 0]), torch.cat([v, v[:1] * 0])
    bias = torch.zeros(len(k) + 1, dtype=k.dtype)
    bias[-1] = score
    strange = _look_up(stranger, *with_null, 32.0, mask=bias)
    measure("names.null_stranger", strange.norm() / _look_up(stranger, k, v, 32.0).norm(), unit="ratio")
    measure("names.null_known_error", (_look_up(k, *with_null, 32.0, mask=bias) - v).abs().max())
    sunk = _look_up(stranger, k, v, 32.0, sinks=torch.tensor([score], dtype=k.dtype))
    measure("names.null_is_a_sink", torch.allclose(sunk, strange, rtol=1e-12, atol=1e-15))


def _scale_for_99(keys: Tensor) -> float:
    """The scale at which the key that was asked for gets a weight of 0.99, by bisection."""
    low, high = 0.0, 32.0
    keys = keys.double()
    for _ in range(40):
        middle = (low + high) / 2
        own = _look_up(keys[:1], keys, keys[:, :1], middle)[0, 0]  # value 1 for the first key, 0 for the others
        low, high = (low, middle) if own >= 0.99 else (middle, high)
    return high


def _crowds(generator: torch.Generator, repeats: int, scale: float = 8.0) -> dict[int, dict[int, float]]:
    """The weight of the key that was asked for, among n random unit keys in d dimensions, at one scale."""
    found: dict[int, dict[int, float]] = {}
    for d in (16, 64, 256):
        found[d] = {}
        for n in (8, 16, 32, 64, 128, 256):
            keys = torch.randn(repeats, n, d, generator=generator)
            keys = keys / keys.norm(dim=-1, keepdim=True)
            weights = [float(_own(k, k, scale).mean()) for k in keys]
            found[d][n] = sum(weights) / repeats
            if n == 256:
                measure_mean(f"names.crowd_weight_{d}", weights)
    alone = torch.eye(256)
    measure("names.crowd_weight_orthonormal", _own(alone, alone, scale)[0])
    return found


def _look_up(query: Tensor, k: Tensor, v: Tensor, scale: float, **options: Any) -> Tensor:
    """attention() for one head of one sequence."""
    out = attention(query[None, None], k[None, None], v[None, None], scale=scale, **options)
    assert isinstance(out, Tensor)
    return out[0, 0]


def _own(query: Tensor, k: Tensor, scale: float) -> Tensor:
    """The weight that query i gives to key i."""
    return _look_up(query, k, torch.eye(len(k), dtype=k.dtype), scale).diagonal()
