"""The cache of a window is a ring: what must it keep, what does it weigh, and how does one get it wrong?

A model with a window reads a text once as a whole, and once token by token with a ring, with a cache that keeps
everything, and with three mistakes. Then the caches of published models, of whose layers only some have a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from attnbook.costs import kv_cache_bytes, kv_cache_layers, model
from attnbook.experiments._attend import attend
from attnbook.experiments.window_reach import VOCAB, fresh
from attnbook.measure import experiment, measure
from attnbook.models import Transformer
from attnbook.reference.kv_cache import KVCache, RingKVCache
from attnbook.reference.kv_cache import attend as attend_cache

PUBLISHED = ("Gemma-3-27B", "gpt-oss-120b")


@experiment
def run(window: int = 8, t: int = 64, layers: int = 3, chunk: int = 12, context: int = 131072, seed: int = 0) -> None:
    """A text of `t` tokens, by ones; a chunk in the middle of it; and published models at `context` tokens."""
    torch.manual_seed(seed)
    small = fresh(layers, window, seed)
    text = torch.randint(VOCAB, (1, t))
    rings, whole = ([kind() for _ in range(layers)] for kind in (lambda: RingKVCache(window), KVCache))
    with torch.no_grad():
        right = small(text)
        by_ring, by_all = (by_ones(small, text, caches) for caches in (rings, whole))
        measure("window.ring_error", (by_ring - right).abs().max())
        measure("window.ring_and_all_apart", (by_ring - by_all).abs().max())
        measure("window.ring_slots", rings[0].k.shape[2])
        kept = t * rings[0].nbytes // rings[0].k.shape[2]  # what every token would take, were it kept
        measure("window.ring_share", Fraction(rings[0].nbytes, kept), unit="ratio")
        _mistakes(small, text, right, window)
        _order(window)
        _chunk(window, chunk)
    measure("window.context", context, unit="token")
    for name in PUBLISHED:
        _published(name, context)


def by_ones(
    small: Transformer, text: Tensor, caches: Sequence[Any], place: Callable[[int], int] | None = None
) -> Tensor:
    """The logits (1, t, vocab) of a text (1, t) read token by token, the i-th at position `place(i)` where given."""
    rows = []
    for i in range(text.shape[1]):
        at = None if place is None else torch.tensor([place(i)])
        rows.append(small(text[:, i : i + 1], caches=caches, positions=at))
    return torch.cat(rows, 1)


def _mistakes(small: Transformer, text: Tensor, right: Tensor, window: int) -> None:
    """A ring with a slot too few, and positions counted by the slots in use: how wrong once the ring is full?"""
    layers = range(len(small.blocks))
    short = fresh(len(small.blocks), window - 1, 0)  # the same model, but for what it keeps
    short.load_state_dict(small.state_dict())
    early = by_ones(short, text, [RingKVCache(window - 1) for _ in layers])
    full = by_ones(small, text, [RingKVCache(window) for _ in layers], lambda i: min(i, window - 1))
    for name, wrong in (("early", early), ("slots", full)):
        off = (wrong - right)[:, window:].norm() / right[:, window:].norm()
        measure(f"window.ring_{name}_off", off, unit="ratio")
        measure(f"window.ring_{name}_begins", int((wrong - right).abs().amax(-1)[0].gt(1e-9).nonzero()[0]))
    cache = RingKVCache(window - 1)
    cache.append(*torch.zeros(2, 1, 1, 1, 4))
    try:
        attend_cache(torch.zeros(1, 1, 1, 4), cache, window=window)
        refused = False
    except ValueError as error:
        refused = f"window is {window} but the cache keeps {window - 1}" in str(error)
    measure("window.ring_too_small_refused", refused)


def _order(window: int) -> None:
    """Does it matter that the slots are not in order of position? One query, its window of keys, rolled."""
    q, k, v = torch.randn(3, 1, 1, window, 16, dtype=torch.float64)
    q = q[:, :, -1:]
    turned = k.roll(1, 2), v.roll(1, 2)
    measure("window.slots_in_any_order", (attend(q, k, v) - attend(q, *turned)).abs().max())
    slopes = torch.tensor([0.5], dtype=torch.float64)  # ALiBi counts the distance by the place in the row of keys
    apart = attend(q, k, v, alibi_slopes=slopes) - attend(q, *turned, alibi_slopes=slopes)
    measure("window.slots_alibi_off", apart.norm() / attend(q, k, v, alibi_slopes=slopes).norm() > 0.01)


def _chunk(window: int, chunk: int) -> None:
    """A chunk of tokens at once, after a full ring: which of its queries are wrong if only `window` keys are kept?"""
    q, k, v = torch.randn(3, 1, 1, 4 * window + chunk, 16, dtype=torch.float64)
    right = attend(q, k, v, is_causal=True, window=window)[:, :, -chunk:]
    ring = RingKVCache(window)
    ring.append(k[:, :, :-chunk], v[:, :, :-chunk])
    ring.append(k[:, :, -chunk:], v[:, :, -chunk:])
    measure("window.chunk_error", (attend_cache(q[:, :, -chunk:], ring) - right).abs().max())
    measure("window.chunk_keys", ring.k.shape[2])
    cut = attend(q[:, :, -chunk:], k[:, :, -window:], v[:, :, -window:], is_causal=True, window=window)
    measure("window.chunk", chunk)
    measure("window.chunk_cut_wrong", int((cut - right).abs().amax(-1).gt(1e-9).sum()))
    measure("window.chunk_cut_empty", int((cut == 0).all(-1).sum()))


def _published(name: str, context: int) -> None:
    """The cache of one request of `context` tokens: as it is, and were every layer to keep everything."""
    shape, key = model(name), name.split("-")[0].lower().replace("gpt", "gpt_oss")
    layers = kv_cache_layers(shape, tokens=context)
    measure(f"window.{key}_layers", len(layers))
    measure(f"window.{key}_windows", sum(layer.kind == "window" for layer in layers))
    measure(f"window.{key}_window", max(layer.tokens for layer in layers if layer.kind == "window"))
    hybrid = kv_cache_bytes(shape, tokens=context)
    full = kv_cache_bytes(replace(shape, windows=(None,) * shape.layers), tokens=context)
    measure(f"window.{key}_bytes", hybrid, unit="B")
    measure(f"window.{key}_bytes_full", full, unit="B")
    measure(f"window.{key}_saves", full / hybrid, unit="ratio")
    of_windows = sum(layer.bytes for layer in layers if layer.kind == "window")
    measure(f"window.{key}_share_of_windows", of_windows / hybrid, unit="ratio")
