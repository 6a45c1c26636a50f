"""Does the Triton kernel calculate attention? On a machine without a GPU, Triton's interpreter carries it out.

Interpreting must be asked for before the kernels are imported, so it happens in a process of its own. Nothing is timed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from attnbook.measure import experiment, measure

FORWARD = Path(__file__).parents[1] / "kernels" / "flash" / "forward_kernel.py"


@experiment
def run(n: int = 80, d: int = 16, seed: int = 0) -> None:
    """Two heads of n causal queries in float32, forward and backward, against the reference in float64."""
    found = interpreted(n, d, seed)
    measure("flash.kernel_error", found["out"])
    measure("flash.kernel_lse_error", found["lse"])
    measure("flash.kernel_gradient_error", found["gradients"])
    measure("flash.kernel_empty_rows", found["empty"] == 0.0)


def interpreted(n: int, d: int, seed: int) -> dict[str, float]:
    """The largest absolute errors of `out`, `lse` and `gradients`, and what `empty` rows give, from a new process.

    Raises RuntimeError with the last thing that the process said where it fails.
    """
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", "-m", "attnbook.experiments.flash_kernel", str(n), str(d), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise RuntimeError(f"the interpreter ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return {name: float(value) for name, value in json.loads(done.stdout).items()}


def excerpt(first: str, last: str, file: Path = FORWARD) -> str:
    """The lines of a source file from the one that holds `first` up to the next that holds `last`, moved to the left.

    Raises LookupError where `first` does not stand in exactly one line, or `last` in none after it.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if first in line]
    if len(starts) != 1:
        raise LookupError(f"{file.name}: {first!r} stands in {len(starts)} lines, expected one")
    ends = [i for i, line in enumerate(lines) if last in line and i >= starts[0]]
    if not ends:
        raise LookupError(f"{file.name}: no line after the one with {first!r} holds {last!r}")
    return textwrap.dedent("\n".join(lines[starts[0] : ends[0] + 1]))


def _child(n: int, d: int, seed: int) -> dict[str, float]:
    """In the process that interprets."""
    import torch

    from attnbook.api import attention
    from attnbook.experiments.flash_backward import gradients
    from attnbook.experiments.flash_exact import draw
    from attnbook.reference import attention as reference

    q, k, v = (x.transpose(0, 1) for x in draw(2, n, d, seed))  # (1, 2, n, d)
    g = torch.randn(q.shape, generator=torch.Generator().manual_seed(seed + 1000), dtype=torch.float64)
    truth, true_lse = reference(q, k, v, is_causal=True, return_lse=True)
    true_gradients = gradients(lambda *x: reference(*x, is_causal=True), q, k, v, g)
    short = [x.float() for x in (q, k, v, g)]
    out, lse = attention(*short[:3], is_causal=True, return_lse=True, impl="triton")
    found = gradients(lambda *x: attention(*x, is_causal=True, impl="triton"), *short)
    nobody = torch.zeros(n, n, dtype=torch.bool)
    empty = attention(*short[:3], mask=nobody, impl="triton")
    pairs = {"out": (out, truth), "lse": (lse, true_lse), "gradients": (found, true_gradients)}
    errors = {name: float((x.double() - y).abs().max()) for name, (x, y) in pairs.items()}
    return errors | {"empty": float(empty.abs().max())}


if __name__ == "__main__":
    print(json.dumps(_child(*map(int, sys.argv[1:]))))
