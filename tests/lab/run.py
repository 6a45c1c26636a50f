"""Solutions as source text, judged as a reader's would be; many in one process, so that a table takes seconds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnbook.lab.judge import Finding, judge
from attnbook.lab.process import Process
from attnbook.lab.step import Part, Step

SOLUTIONS = Path(__file__).parents[2] / "attnbook" / "lab" / "solutions"


class Desk:
    """Judges one source after another; a process that a source has ended is replaced.

    Beside each source lie the solutions, as a reader's earlier steps do.
    """

    def __init__(self) -> None:
        self._process: Process | None = None

    def finding(self, step: Step, source: str, part: Part | None = None) -> Finding | None:
        """What is wrong with the source's function of that part (default: the step's first)."""
        part = step.parts[0] if part is None else part
        if self._process is None or self._process.ended is not None:
            self._process = Process(folder=SOLUTIONS)
        found, failure = self._process.load({"source": textwrap.dedent(source), "file": "reader.py"}, (part.name,))
        if failure is not None:
            return Finding((failure.kind,), details={"text": failure.text})
        return judge(self._process, part) if found else Finding(("missing",))

    def diagnose(self, step: Step, source: str, part: Part | None = None) -> tuple[str, ...]:
        """The names of the mistakes found; () for a right solution."""
        finding = self.finding(step, source, part)
        return () if finding is None else finding.mistakes

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()


@contextmanager
def desk() -> Iterator[Desk]:
    """A desk for the tests of a module."""
    made = Desk()
    try:
        yield made
    finally:
        made.close()
