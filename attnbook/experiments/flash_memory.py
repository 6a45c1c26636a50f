"""Does attention in tiles really do without a table of n × n? Peak memory at several lengths, measured.

Every allocation is counted while the call runs (`_peak`); what the costs model computes stands beside it. Inputs were
there before and are not counted; the result is.
"""

from __future__ import annotations

from typing import Any

import torch

from attnbook import tiled
from attnbook.costs import attention_memory
from attnbook.experiments._peak import peak_bytes
from attnbook.experiments.flash_exact import plain
from attnbook.measure import experiment, measure

LONG = 131_072
"""The length for which the table is only computed: it would not fit here."""


@experiment
def run(lengths: tuple[int, ...] = (1024, 2048, 4096, 8192), d: int = 64) -> dict[str, Any]:
    """One head in float32. Data, a number for each length: `lengths`, `plain`, `tiled`, `results` (bytes)."""
    found: dict[str, list[int]] = {"lengths": list(lengths), "plain": [], "tiled": [], "results": []}
    for n in lengths:
        q, k, v = torch.zeros(3, 1, 1, n, d)
        sizes = attention_memory(n, n_heads=1, head_dim=d, dtype="float32")
        found["plain"].append(peak_bytes(lambda q=q, k=k, v=v: plain(q, k, v)))  # type: ignore[misc]
        found["tiled"].append(
            peak_bytes(lambda q=q, k=k, v=v: tiled.attention(q, k, v, return_lse=True))  # type: ignore[misc]
        )
        found["results"].append(sizes.out + sizes.lse)
        measure(f"flash.peak_plain_{n}", found["plain"][-1], unit="B")
        measure(f"flash.tables_{n}", 2 * sizes.scores, unit="B")
        measure(f"flash.peak_tiled_{n}", found["tiled"][-1], unit="B")
        measure(f"flash.results_{n}", found["results"][-1], unit="B")
    measure("flash.workplace", max(a - b for a, b in zip(found["tiled"], found["results"], strict=True)), unit="B")
    measure("flash.doubled_plain", found["plain"][-1] / found["plain"][-2], unit="ratio")
    measure("flash.doubled_tiled", found["tiled"][-1] / found["tiled"][-2], unit="ratio")
    measure("flash.peak_ratio", found["plain"][-1] / found["tiled"][-1], unit="ratio")
    long = attention_memory(LONG, n_heads=1, head_dim=d, dtype="float32")
    measure("flash.table_long", long.scores, unit="B")
    measure("flash.results_long", long.out + long.lse, unit="B")
    return found
