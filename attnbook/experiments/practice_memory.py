"""What training keeps for the backward pass when the context doubles: bytes counted as autograd saves them.

Attention as the formula has it keeps the weights, t × t; with tiles it keeps q, k, v, the output and one number a
query. A whole model keeps both kinds, and what is linear besides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.api.attention import attention
from attnbook.measure import experiment, measure


@experiment
def run(t: int = 1024, heads: int = 1, d: int = 32, seed: int = 0) -> Any:
    """Attention at t and at 2 t. Data: `kept`, bytes by way and length."""
    ways = {"formula": formula, "tiled": tiled, "sdpa": sdpa}
    kept = {}
    for name, way in ways.items():
        kept[name] = tuple(saved_bytes(way, *_inputs(n, heads, d, seed)) for n in (t, 2 * t))
        measure(f"practice.memory_{name}", kept[name][1] / kept[name][0], unit="ratio")
    measure("practice.memory_formula_bytes", kept["formula"][1], unit="B")
    measure("practice.memory_tiled_bytes", kept["tiled"][1], unit="B")
    measure("practice.memory_table_bytes", heads * (2 * t) ** 2 * 4, unit="B")
    return {"kept": kept}


def saved_bytes(fn: Callable[..., Tensor], *inputs: Tensor) -> int:
    """The bytes that autograd keeps for the backward pass of fn(*inputs); each piece of memory counts once."""
    seen: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        seen[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        out = fn(*inputs)
    del out
    return sum(seen.values())


def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The three lines."""
    out: Tensor = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
    return out


def tiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Ours, in tiles."""
    out: Tensor = attention(q, k, v, impl="tiled")
    return out


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What torch has."""
    return scaled_dot_product_attention(q, k, v)


def _inputs(t: int, heads: int, d: int, seed: int) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, heads, t, d, generator=g).requires_grad_() for _ in range(3))
