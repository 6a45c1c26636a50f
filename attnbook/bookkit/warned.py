"""Sphinx's warnings as this project says things: paths from the project's folder on, and at the end how many there are.

Sphinx prints a warning where it arises, with the absolute path, and nothing at the end; the gate's failures come as a
list of their own, which counts itself.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TextIO


class Warnings:
    """Stands in for the stream that Sphinx writes warnings to, one call of `write` each."""

    def __init__(self, stream: TextIO, project: Path) -> None:
        from attnbook.claims import gate

        self._stream = stream
        self._project = project
        self.encoding = stream.encoding
        self._written = self._gates = 0
        gate.LOGGER.logger.addFilter(self._count_gates)

    def write(self, text: str) -> None:
        """Write one warning, with its line end."""
        self._stream.write(shortened(text, self._project))
        self._written += 1

    def flush(self) -> None:
        """Have it shown now."""
        self._stream.flush()

    def isatty(self) -> bool:
        """May it be coloured?"""
        return self._stream.isatty()

    def _count_gates(self, record: logging.LogRecord) -> bool:
        self._gates += record.levelno >= logging.WARNING
        return True

    @property
    def summary(self) -> str:
        """What makes a strict build fail beside what the gate found, in one line; empty when nothing does."""
        count = self._written - self._gates
        if count <= 0:
            return ""
        return f"{count} warning{'s' if count > 1 else ''} of Sphinx fail{'s' * (count == 1)} this build, see above"


def shortened(text: str, project: Path) -> str:
    """The text with paths below the project's folder, given absolutely, as they are called within it."""
    if project == project.parent:
        return text
    # A path begins after what can't belong to it; Sphinx's colour codes end in a letter.
    return re.sub(rf"(^|[^\w./-]|\x1b\[[\d;]*m){re.escape(str(project))}/", r"\1", text, flags=re.MULTILINE)
