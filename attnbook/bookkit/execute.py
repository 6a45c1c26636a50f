"""Runs the chapters whose results no longer hold, side by side, and keeps each result as soon as it is there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attnbook.bookkit.chapter import Chapter, chapters
from attnbook.bookkit.failure import ChapterFailed
from attnbook.bookkit.progress import Progress
from attnbook.bookkit.store import Store
from attnbook.bookkit.trace import Changed, Files

TIMEOUT = 120.0
"""Seconds that a cell may take."""
ATTEMPTS = 3
"""How often a chapter is run when files change under it, as they do while an author is at work."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Outcome:
    """What happened to the chapters."""

    unchanged: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Everything that went wrong, each with its place."""
    status: int = 0

    def fail(self, text: str, status: int) -> None:
        """Note an error; the worst status counts."""
        self.errors.append(text)
        self.status = max(self.status, status)


def execute(book: Path, *, jobs: int | None = None, timeout: float = TIMEOUT, only: Sequence[str] = ()) -> Outcome:
    """Run what must be run of the book's chapters, or of those named in `only`. The caller holds the build's lock.

    A chapter that fails does not keep the others from being run and kept; its own result is not kept, so that the next
    build fails again. Raises OSError where results can't be written.
    """
    outcome = Outcome()
    found, unreadable = chapters(book)
    for error in unreadable:
        outcome.fail(str(error), 1)
    if only:
        found = [chapter for chapter in found if chapter.name in only]
    store, files = Store(book), Files(book)
    pending = []
    for chapter in found:
        if store.find(chapter, files) is None:
            pending.append(chapter)
        else:
            outcome.unchanged.append(chapter.name)
    if outcome.unchanged:
        print(f"{_count(len(outcome.unchanged))} unchanged", flush=True)
    if pending:
        store.folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        # The chapter that took longest goes first: none is left to run alone at the end. An unknown one may be long.
        lasted = {chapter.name: store.last_seconds(chapter.name) for chapter in pending}
        pending.sort(key=lambda chapter: -(lasted[chapter.name] or float("inf")))
        _Run(book, store, outcome, timeout, Progress([chapter.name for chapter in pending])).all(pending, jobs)
        print(f"{_count(len(outcome.executed))} executed in {time.perf_counter() - start:.1f} s", flush=True)
    for text in outcome.errors:
        print(text, file=sys.stderr, flush=True)
    return outcome


def _count(number: int) -> str:
    return f"{number} chapter{'' if number == 1 else 's'}"


@dataclass
class _Run:
    book: Path
    store: Store
    outcome: Outcome
    timeout: float
    progress: Progress

    def all(self, pending: Sequence[Chapter], jobs: int | None) -> None:
        asyncio.run(self._all(pending, jobs or cores()))

    async def _all(self, pending: Sequence[Chapter], jobs: int) -> None:
        gate = asyncio.Semaphore(jobs)
        tasks = [asyncio.ensure_future(self._one(chapter, gate)) for chapter in pending]
        everything = asyncio.gather(*tasks)
        with contextlib.suppress(NotImplementedError):
            # Asked to end, end the kernels too. (Ctrl-C arrives as a cancellation by itself. On Windows an event loop
            # takes no signal handlers, and there a process that is ended is not asked.)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, everything.cancel)
        try:
            await everything
        finally:  # when one result can't be written, the others end before the loop does, each with its kernel
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, chapter: Chapter, gate: asyncio.Semaphore) -> None:
        async with gate:
            try:
                await self._attempts(chapter)
            except ChapterFailed as error:
                self.outcome.fail(str(error), error.status)
                self.progress.failed(chapter.name, error.why)

    async def _attempts(self, chapter: Chapter) -> None:
        from attnbook.bookkit import session  # brings Jupyter, which a build that runs nothing need not load

        total = len(chapter.cells)
        names: list[str] = []
        for _ in range(ATTEMPTS):
            try:
                result = await session.run(
                    chapter, Files(self.book), self.timeout, lambda n: self.progress.cell(chapter.name, n, total)
                )
            except Changed as changed:
                names = changed.names
                self.progress.note(f"{chapter.name}: {changed} changed while it ran: once more")
                continue
            self.store.save(result)
            self.outcome.executed.append(chapter.name)
            self.progress.done(chapter.name, result.seconds, result.experiments)
            return
        raise ChapterFailed(
            f"{chapter.shown}:1: nothing was kept: {', '.join(names)} changed each time the chapter ran. "
            "A chapter may not write what it reads; if you are editing, build again when you are done",
            "files changed while it ran",
        )
