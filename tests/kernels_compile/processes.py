"""Processes that compile kernels: not interpreted, whatever this one was started with."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compiling(*arguments, **environment):
    """Run Python where the kernels are compiled; the finished process."""
    inherited = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=inherited | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
