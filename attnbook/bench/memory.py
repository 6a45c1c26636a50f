"""How much memory a call takes beyond its inputs and its result, measured in a process of its own.

The process has run the same call at a small size before, so that libraries are loaded and thread pools started. Peaks
are the kernel's own: VmHWM, the most that was ever resident, set back before the call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attnbook.bench.case import CannotRun

if TYPE_CHECKING:
    from torch import Tensor

SIDES = ("tiled window", "sdpa window", "tiled causal", "naive causal")
WARM = 64
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_WAIT_POLICY": "PASSIVE"}
"""Whatever is freed goes back to the system at once (glibc): what is resident is what is held."""
MIB = 1 << 20


def extra(side: str, t: int, window: int) -> float:
    """MiB that a side needs at its peak beyond inputs and result; 8 heads, d 64, float32. Raises CannotRun."""
    made = subprocess.run(
        [sys.executable, "-m", "attnbook.bench.memory", side, str(t), str(window)],
        env=os.environ | ALLOCATOR, capture_output=True, encoding="utf-8", errors="replace",
    )  # fmt: skip
    if made.returncode:
        last = (made.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise CannotRun(f"measuring the memory of {side} ended with {made.returncode}: {last}")
    return float(json.loads(made.stdout)["mib"])


def measure(side: str, t: int, window: int) -> float:
    """The same in this process. Raises ValueError for a side that is none of `SIDES`."""
    if side not in SIDES:
        raise ValueError(f"side is {side!r}: expected one of {', '.join(SIDES)}")
    import torch

    torch.manual_seed(0)
    _call(side, *torch.randn(3, 1, 8, WARM, 64), window=min(window, WARM))
    q, k, v = torch.randn(3, 1, 8, t, 64)
    before = _forget_the_peak()
    out = _call(side, q, k, v, window=window)
    peak = _status("VmHWM")
    return (peak - before - out.numel() * out.element_size()) / MIB


def _call(side: str, q: Tensor, k: Tensor, v: Tensor, *, window: int) -> Tensor:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from attnbook import api
    from attnbook.bench.attention_cases import window_mask

    t = q.shape[2]
    out: Tensor
    if side == "tiled window":
        out = api.attention(q, k, v, is_causal=True, window=window, impl="tiled")
    elif side == "tiled causal":
        out = api.attention(q, k, v, is_causal=True, impl="tiled")
    elif side == "sdpa window":
        out = scaled_dot_product_attention(q, k, v, attn_mask=window_mask(t, window, "cpu"))
    else:  # naive causal: as one writes it at first
        score = q @ k.mT / 64**0.5
        score = score.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), -torch.inf)
        out = torch.softmax(score, -1) @ v
    return out


def _forget_the_peak() -> int:
    """What is resident now, in bytes; the peak is set back to it where the system allows that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _status("VmHWM")  # then what was the peak before counts as what was there before
    return _status("VmRSS")


def _status(field: str) -> int:
    """A size from /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps({"mib": measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))}))
