"""The package's own command, run as a reader runs it. No experiment; those that show what it prints share it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import attnbook


class Printed(NamedTuple):
    """What a command printed on standard output, and its exit status."""

    text: str
    status: int

    @property
    def data(self) -> Any:
        """What `--json` printed."""
        return json.loads(self.text)


def command(*arguments: str, folder: Path | None = None) -> Printed:
    """Run `attnbook ARGUMENTS…` in a process of its own, in `folder`. Raises RuntimeError where it could not do it."""
    here = str(Path(attnbook.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "attnbook", *arguments], cwd=folder, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if done.returncode > 1:  # 0 and 1 are answers
        raise RuntimeError(f"attnbook {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return Printed(done.stdout, done.returncode)
