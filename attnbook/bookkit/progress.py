"""What an author sees while chapters run: on a terminal a line for each, changing in place; elsewhere plain lines."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TextIO


def never_refuse() -> None:
    """Have standard output print what its encoding lacks as escapes: a book is Japanese, a terminal may not be.

    And each line at once, also into a pipe or a file, where whoever waits for it would otherwise wait for the next.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)


class Progress:
    """Tells how far every chapter is."""

    def __init__(self, names: Sequence[str], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._width = max(map(len, names), default=0)
        self._live = self._stream.isatty()
        self._running: dict[str, str] = {}
        self._drawn = 0

    def cell(self, name: str, number: int, total: int) -> None:
        """A chapter begins a cell; number 0 says that its kernel is starting."""
        state = f"cell {number}/{total}" if number else "starting"
        self._running[name] = state
        if self._live:
            self._draw()
        elif number:
            self._print(self._line(name, state))

    def done(self, name: str, seconds: float, experiments: Sequence[tuple[str, float]]) -> None:
        """A chapter has run."""
        self._finish(name, f"done {seconds:.1f} s")
        for experiment, taken in experiments:
            self._print(f"{'':{self._width}}    {experiment.removeprefix('attnbook.experiments.')} {taken:.1f} s")
        self._draw()

    def failed(self, name: str, why: str) -> None:
        """A chapter could not be run to its end."""
        self._finish(name, f"FAILED {why}")
        self._draw()

    def note(self, text: str) -> None:
        """Anything else, between the lines."""
        self._erase()
        self._print(text)
        self._draw()

    def _line(self, name: str, state: str) -> str:
        return f"{name:{self._width}}  {state}"

    def _finish(self, name: str, state: str) -> None:
        self._running.pop(name, None)
        self._erase()
        self._print(self._line(name, state))

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _erase(self) -> None:
        if self._live and self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")  # to the first drawn line, and clear from there
            self._drawn = 0

    def _draw(self) -> None:
        """Draw the lines of running chapters again; finished ones stay above, so the terminal may scroll."""
        if not self._live:
            return
        self._erase()
        for name, state in self._running.items():
            self._print(self._line(name, state))
        self._drawn = len(self._running)
