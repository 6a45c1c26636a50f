"""Results of executed chapters, kept between builds in `book/_build/execution`.

An entry is found by its key (what was run, with which versions) and by the files the execution depended on: it counts
while each of them has the content it had. Several entries are kept for a chapter, so that undoing a change finds the
older one again. An entry is written whole or not at all, and carries a digest of itself: one that was damaged does
not count.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnbook.bookkit.chapter import KERNEL, Chapter
from attnbook.bookkit.trace import Files

FORMAT = 1
"""Part of every key: raise it when the way chapters are run changes what they give."""
KEPT = 8
"""Entries kept for a chapter, those used last."""
VERSIONS = ("torch", "numpy", "array-api-compat", "triton", "matplotlib")
CHANGES_EXECUTION = ("raises-exception", "skip-execution")
"""Tags of a cell that change what running it does; all others only change how it is shown."""


@dataclass(frozen=True)
class Result:
    """What running a chapter gave."""

    chapter: str
    key: str
    depends: Mapping[str, str]
    """Name and digest of every file that it depended on."""
    seconds: float
    experiments: Sequence[tuple[str, float]]
    """Name and seconds of every experiment that ran."""
    cells: Sequence[Mapping[str, Any]]
    """For every code cell its `outputs` and its `count`."""
    language_info: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Of what a page shows: equal for two executions with the same outputs, however long they took."""
        shown = json.dumps([self.cells, self.language_info], sort_keys=True)
        return hashlib.sha256(shown.encode()).hexdigest()


def key(chapter: Chapter) -> str:
    """What is run and with what: code cells, kernel, versions. Prose and the display of cells are not in it."""
    cells = [[cell.source, sorted(set(cell.tags) & set(CHANGES_EXECUTION))] for cell in chapter.cells]
    text = json.dumps([FORMAT, chapter.name, KERNEL, cells, versions()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers and drawings come from; "" where one is not installed."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


class Store:
    """The results kept for a book."""

    def __init__(self, book: Path) -> None:
        self.folder = book / "_build" / "execution"

    def find(self, chapter: Chapter, files: Files) -> Result | None:
        """The result that holds for the chapter as it is now, or None."""
        wanted = key(chapter)
        for path in self._entries(chapter.name, wanted):
            result = load(path)
            if result is not None and result.key == wanted and files.unchanged(result.depends):
                with contextlib.suppress(OSError):
                    os.utime(path)  # used now: entries used last are kept
                return result
        return None

    def save(self, result: Result) -> None:
        """Keep a result, whole or not at all. Raises OSError where the folder is read-only or the disk is full."""
        folder = self.folder / result.chapter
        folder.mkdir(parents=True, exist_ok=True)
        body = json.dumps(asdict(result), ensure_ascii=False, sort_keys=True).encode()
        depends = hashlib.sha256(json.dumps(result.depends, sort_keys=True).encode()).hexdigest()
        target = folder / f"{result.key[:16]}-{depends[:16]}.json"
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
                file.flush()
                os.fsync(file.fileno())  # unlike what Sphinx writes, it is to outlive a power cut
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._tidy(result.chapter)

    def last_seconds(self, name: str) -> float | None:
        """How long the chapter took when it ran last, whatever it held then."""
        for path in self._entries(name):
            result = load(path)
            if result is not None:
                return result.seconds
        return None

    def _entries(self, name: str, wanted: str = "") -> Iterator[Path]:
        """The entries of a chapter, the one used last first."""
        dated = []
        for path in (self.folder / name).glob(f"{wanted[:16]}*.json"):
            with contextlib.suppress(OSError):
                dated.append((path.stat().st_mtime_ns, path))
        return (path for _, path in sorted(dated, reverse=True))

    def _tidy(self, name: str) -> None:
        superfluous = list(self._entries(name))[KEPT:]
        superfluous += (self.folder / name).glob(".new-*")  # left by a build that was killed; we hold the lock
        for path in superfluous:
            path.unlink(missing_ok=True)


def load(path: Path) -> Result | None:
    """Read an entry; None for one that is damaged or of another format."""
    try:
        digest, _, body = path.read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        data = json.loads(body)
        data["experiments"] = [(name, seconds) for name, seconds in data["experiments"]]
        return Result(**data)
    except (OSError, ValueError, KeyError, TypeError):
        return None
