"""How the failure of a chapter is said: file and line, the cell, what happened, and the way there in short."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from attnbook.bookkit.chapter import Cell, Chapter

FRAMES = 10
"""A longer way is shortened in its middle."""


@dataclass(frozen=True)
class Frame:
    """A step on the way to an exception."""

    place: str
    """File and line, as people read them."""
    cell: int | None
    """The number of the cell whose code it is."""
    function: str
    code: str
    """The text of the line."""
    ours: bool
    """Is it code of the book or the package, not of a library or of Python's import?"""

    def __str__(self) -> str:
        inside = f" in {self.function}" if self.function not in ("", "<module>") else ""
        return f"{self.place}{inside}  {self.code}"


class ChapterFailed(Exception):
    """A chapter could not be run to its end; the text says all of it, `why` in a word."""

    def __init__(self, text: str, why: str, status: int = 1) -> None:
        super().__init__(text)
        self.why = why
        self.status = status
        """For the command: 1 when the chapter is at fault, 2 when something is missing to run it."""


def raised(chapter: Chapter, cell: Cell, name: str, text: str, frames: Sequence[Frame]) -> ChapterFailed:
    """A cell raised an exception."""
    message = f"{_place(chapter, cell, frames)}: cell {cell.number} failed: {name}: {_plain(text).strip()}"
    missing = re.match(r"No module named '([\w.]+)'", text)
    status = 1
    if name == "ModuleNotFoundError" and missing and missing[1].partition(".")[0] != "attnbook":
        status = 2
        package = missing[1].partition(".")[0]
        message += f'\n    the package {package} is not installed here; what the book needs: pip install ".[book]"'
    return ChapterFailed(message + _way(cell, frames), f"in cell {cell.number}: {name}", status)


def timed_out(chapter: Chapter, cell: Cell, seconds: float, frames: Sequence[Frame]) -> ChapterFailed:
    """A cell ran longer than it may."""
    message = (
        f"{_place(chapter, cell, frames)}: cell {cell.number} stopped: it ran longer than {seconds:g} s; "
        "--timeout SECONDS sets another limit"
    )
    return ChapterFailed(message + _way(cell, frames), f"in cell {cell.number}: longer than {seconds:g} s")


def kernel_failed(chapter: Chapter, cell: Cell | None, log: str) -> ChapterFailed:
    """The kernel died, while it ran a cell or before it could run any."""
    if cell is not None:
        message = f"{chapter.shown}:{cell.line}: cell {cell.number} failed: the kernel died while it ran"
        return ChapterFailed(message, f"in cell {cell.number}: the kernel died")
    last = "".join(f"\n    {line}" for line in log.strip().splitlines()[-5:])
    hint = '\n    the package ipykernel is not installed: pip install ".[book]"' if "ipykernel_launcher" in log else ""
    return ChapterFailed(f"{chapter.shown}:1: the kernel did not start{last}{hint}", "the kernel did not start", 2)


def _place(chapter: Chapter, cell: Cell, frames: Sequence[Frame]) -> str:
    """The line of the cell that was running: the outermost frame that is this cell's."""
    own = next((frame for frame in frames if frame.cell == cell.number), None)
    return own.place if own else f"{chapter.shown}:{cell.line}"


def _way(cell: Cell, frames: Sequence[Frame]) -> str:
    """The frames from the cell on: our own, and the last, where a library gave up."""
    first = next((i for i, frame in enumerate(frames) if frame.cell == cell.number), len(frames))
    way = [str(frame) for frame in frames[first:] if frame.ours or frame is frames[-1]]
    if len(way) > FRAMES:
        half = FRAMES // 2
        way = [*way[:half], f"… {len(way) - 2 * half} more …", *way[-half:]]
    return "".join(f"\n    {line}" for line in way)


def _plain(text: str) -> str:
    """Without terminal colours, and without the kernel's name for a cell, which the place says better."""
    return re.sub(r"\x1b\[[0-9;]*m| \((?:\d+\.py|cell), line \d+\)$", "", text)
