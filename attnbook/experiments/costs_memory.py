"""How much memory does the table of scores take: counted by a formula, and measured while attention really runs?

One head, float32. Peaks are those of `_peak`, from every allocation that torch makes, without q, k and v. What the
numbers are does not matter to their size, so nothing here is random. torch's own attention runs in its plain form,
without tiles, which is what the three lines say.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from attnbook.costs import AttentionMemory, attention_memory, model
from attnbook.experiments._peak import peak_and_kept, peak_bytes
from attnbook.measure import experiment, measure
from attnbook.reference.three_lines import attention


@experiment
def run(
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096), long: int = 8192, head_dim: int = 64, trained: int = 1024
) -> Any:
    """The three lines at `lengths`; torch at them and at `long`, twice the last; gradients at length `trained`.

    Data: `lengths`, with `long`; for each of them `torch`, `scores` and `inputs`, and for all but the last `lines`,
    in bytes: measured, measured, counted, counted.
    """
    every = (*lengths, long)
    counted = {t: counts(t, head_dim) for t in every}
    lines = {t: lines_peak(t, head_dim) for t in lengths}
    plain = {t: plain_peak(t, head_dim) for t in every}
    short = lengths[-1]
    for name, t in (("short", short), ("long", long)):
        measure(f"costs.scores_{name}", counted[t].scores, unit="B")
        measure(f"costs.peak_{name}", plain[t], unit="B")
        measure(f"costs.inputs_{name}", counted[t].inputs_and_output, unit="B")
    measure("costs.peak_growth", plain[long] / plain[short], unit="ratio")
    measure("costs.scores_growth", counted[long].scores / counted[short].scores, unit="ratio")
    measure("costs.inputs_growth", counted[long].inputs_and_output / counted[short].inputs_and_output, unit="ratio")
    measure("costs.tables_torch", plain[long] / counted[long].scores, unit="ratio")
    measure("costs.peak_lines", lines[short], unit="B")
    measure("costs.tables_lines", lines[short] / counted[short].scores, unit="ratio")
    measure("costs.lines_growth", lines[short] / lines[lengths[-2]], unit="ratio")
    _measure_training(trained, head_dim)
    _measure_real(model("Llama-3.1-8B"), long)
    return {
        "lengths": list(every),
        "torch": [plain[t] for t in every],
        "lines": [lines[t] for t in lengths],
        "scores": [counted[t].scores for t in every],
        "inputs": [counted[t].inputs_and_output for t in every],
    }


def inputs(t: int, head_dim: int) -> Tensor:
    """q, k and v of one head: (3, 1, 1, t, head_dim)."""
    return torch.ones(3, 1, 1, t, head_dim)


def counts(t: int, head_dim: int) -> AttentionMemory:
    """What the formula says."""
    return attention_memory(t, n_heads=1, head_dim=head_dim, dtype="float32")


def lines_peak(t: int, head_dim: int) -> int:
    """The peak of the three lines of chapter 1, beyond their inputs."""
    q, k, v = inputs(t, head_dim)
    return peak_bytes(lambda: attention(q, k, v))


def plain_peak(t: int, head_dim: int) -> int:
    """The peak of torch's attention in its plain form, beyond its inputs."""
    q, k, v = inputs(t, head_dim)
    with sdpa_kernel(SDPBackend.MATH):
        return peak_bytes(lambda: scaled_dot_product_attention(q, k, v))


def _measure_training(t: int, head_dim: int) -> None:
    """What is kept of one layer until its gradients are asked for, and the peak with them, in tables of scores."""
    table = counts(t, head_dim).scores
    leaves = inputs(t, head_dim).requires_grad_()
    _, kept = peak_and_kept(lambda: attention(*leaves))
    measure("costs.tables_kept", kept / table, unit="ratio")
    most, _ = peak_and_kept(lambda: attention(*leaves).sum().backward())
    measure("costs.tables_training", most / table, unit="ratio")
    with torch.no_grad():
        _, nothing = peak_and_kept(lambda: attention(*leaves))
    measure("costs.tables_kept_without", nothing / table < 0.1)


def _measure_real(shape: Any, t: int) -> None:
    """One layer of a published model: its tables, if they were stored, at `t` tokens and at its longest context."""
    for name, length in (("long", t), ("context", shape.context)):
        stored = attention_memory(length, n_heads=shape.n_heads, head_dim=shape.head_dim).scores
        measure(f"costs.layer_tables_{name}", stored, unit="B")
