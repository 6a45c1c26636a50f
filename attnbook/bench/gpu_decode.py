"""Decoding on a GPU: how fast the cache is read, against the card's copying and against torch.

Bytes are those that must be read: every key and value once, whatever the number of query heads that share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbook.bench import rates, rivals
from attnbook.bench.case import Finding, Setting
from attnbook.bench.ceilings import copying
from attnbook.bench.kernel_checks import kernels
from attnbook.bench.rates import inputs
from attnbook.costs import bytes_of

N_HEADS, N_KV_HEADS, D = 32, 8, 128


def cache_bytes(b: int, t: int, dtype: str = "bfloat16") -> int:
    """Of the keys and values of b sequences of t tokens."""
    return bytes_of(2 * b * N_KV_HEADS * t * D, dtype)


def _sizes(b: int, t: int, setting: Setting) -> tuple[int, int]:
    return (min(b, 2), setting.length(t) // 8) if setting.quick else (b, t)


def contiguous(b: int, t: int, *, flex: bool = False) -> Callable[[Setting], Finding]:
    """Percent of copying's GB/s for one new token for each of b sequences of t, 32 heads over 8, d 128, bfloat16."""

    def run(setting: Setting) -> Finding:
        room, (n, length) = kernels("decode", setting), _sizes(b, t, setting)
        q, k, v = inputs(setting, (n, N_HEADS, 1, D), *2 * [(n, N_KV_HEADS, length, D)], dtype=torch.bfloat16)
        options = {"is_causal": False, "window": None, "softcap": None, "scale": D**-0.5}

        def ours() -> Tensor:
            out: Tensor = room.decode_forward(q, k, v, None, None, None, **options)[0]
            return out

        others = rivals.Rivals()
        with torch.no_grad():
            for name, way in rivals.attention(q, k, v, is_causal=False, with_flex=flex).items():
                others.add(name, lambda way=way: way(q, k, v))  # type: ignore[misc]
            rates.keep_right(ours(), others, rates.rows_judge(q, k, v, options))
            return rates.measured(
                ours, others, setting, amount=cache_bytes(n, length), unit="GB/s", as_share=True,
                ceiling=("copy", copying(setting)),
            )  # fmt: skip

    return run


PAGE = 16


def paged(b: int, t: int) -> Callable[[Setting], Finding]:
    """The same from pages of 16 tokens in random order; torch's sides have a contiguous cache, which it would need."""

    def run(setting: Setting) -> Finding:
        room, (n, length) = kernels("decode", setting), _sizes(b, t, setting)
        m = length // PAGE
        q, k_pages, v_pages = inputs(
            setting, (n, N_HEADS, 1, D), *2 * [(n * m, N_KV_HEADS, PAGE, D)], dtype=torch.bfloat16
        )
        table = torch.randperm(n * m, generator=torch.Generator().manual_seed(0)).view(n, m).to(q.device, torch.int32)
        lengths = torch.full((n,), length, dtype=torch.int32, device=q.device)
        options = {"window": None, "softcap": None, "scale": D**-0.5}
        # `longest`: the table is known to be right, as in all layers but a model's first, so no call waits.
        known: dict[str, Any] = options | {"longest": length}

        def ours() -> Tensor:
            out: Tensor = room.paged_forward(q, k_pages, v_pages, table, lengths, None, None, **known)[0]
            return out

        # (n, m, h, page, d) -> (n, h, m · page, d)
        k, v = (pages[table.long()].transpose(1, 2).flatten(2, 3) for pages in (k_pages, v_pages))
        others = rivals.Rivals()
        with torch.no_grad():
            for name in ("flash", "cudnn"):
                others.add(
                    f"{name}, contiguous",
                    lambda name=name: rivals.sdpa(name, q, k, v, is_causal=False),  # type: ignore[misc]
                )
            rates.keep_right(ours(), others, rates.rows_judge(q, k, v, options))
            return rates.measured(
                ours, others, setting, amount=cache_bytes(n, length), unit="GB/s", as_share=True,
                ceiling=("copy", copying(setting)),
            )  # fmt: skip

    return run
