"""One command from sources to HTML: execute what must be executed, then Sphinx; one build at a time in a book."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TextIO, cast

from attnbook.bookkit import entrance
from attnbook.bookkit.execute import TIMEOUT, cores, execute

_UNWRITABLE = {
    errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ENOSPC, errno.ENOTDIR,
    errno.EPERM, errno.EROFS,
}  # fmt: skip


class CannotRun(Exception):
    """The command can't do its work here; the text says why."""


def run_execute(book: Path, *, jobs: int | None = None, timeout: float = TIMEOUT, only: Sequence[str] = ()) -> int:
    """Execute the chapters that need it. Returns the exit status: 0, 1 when a chapter failed, 2 when it can't run."""
    with _writing(book), _locked(book):
        return execute(book, jobs=jobs, timeout=timeout, only=only).status


def run_build(
    book: Path,
    *,
    languages: Sequence[str] = (entrance.SOURCE,),
    jobs: int | None = None,
    timeout: float = TIMEOUT,
    builder: str = "html",
    base_url: str = "",
    verbose: bool = False,
    strict: bool = False,
) -> int:
    """Execute, then run Sphinx for each language into `_build/<builder>/<language>`. Returns the worst exit status.

    When a chapter fails Sphinx is not started: what it could say would follow from the missing numbers.
    """
    if not (book / "conf.py").is_file():
        raise CannotRun(f"{book}: no conf.py there; expected the folder of a book")
    if base_url:
        os.environ["ATTNBOOK_BASE_URL"] = base_url
    with _writing(book), _locked(book):
        start = time.perf_counter()
        for language in languages:  # a build that fails or is stopped before it judges leaves no older verdicts
            name = "ledger.json" if language == entrance.SOURCE else f"ledger.{language}.json"
            (book / "_build" / name).unlink(missing_ok=True)
        outcome = execute(book, jobs=jobs, timeout=timeout)
        if outcome.status:
            print("Sphinx was not started: mend the chapters first", file=sys.stderr, flush=True)
            return outcome.status
        executed = time.perf_counter()
        if len(languages) == 1:
            status = run_sphinx(book, languages[0], builder=builder, jobs=jobs, verbose=verbose, strict=strict)
        else:
            # Sphinx keeps the language of its own labels for the life of a process.
            options = ["--builder", builder, *["--verbose"] * verbose, *["--strict"] * strict]
            command = [sys.executable, "-m", "attnbook.bookkit", "sphinx", str(book), *options, "--language"]
            status = max(subprocess.run([*command, language]).returncode for language in languages)
        if builder == "html":
            entrance.write(book / "_build" / builder, languages)
        ended = time.perf_counter()
    print(f"execution {executed - start:.1f} s, Sphinx {ended - executed:.1f} s", flush=True)
    if status == 0 and builder == "html":
        print("\n".join(f"built {book / '_build' / builder / language / 'index.html'}" for language in languages))
    return status


def run_sphinx(
    book: Path,
    language: str,
    *,
    builder: str = "html",
    jobs: int | None = None,
    verbose: bool = False,
    strict: bool = False,
) -> int:
    """Run Sphinx in this process, which must not have run it before. The caller holds the build's lock.

    `strict` makes every warning of Sphinx a failure, on the next build again, and says at the end how many there were.
    Raises CannotRun when Sphinx has to stop.
    """
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.console import nocolor
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    from attnbook.bookkit.warned import Warnings, shortened

    _leave_out_execution()
    if not sys.stderr.isatty():
        nocolor()
    output = book / "_build" / builder / language
    # Each builder has its own doctrees: a page that one has read again is no news to another.
    doctrees = book / "_build" / "doctrees" / (language if builder == "html" else f"{builder}-{language}")
    project = book.resolve().parent
    warnings = Warnings(sys.stderr, project)
    try:
        with patch_docutils(book), docutils_namespace():
            app = Sphinx(
                book, book, output, doctrees, builder, confoverrides={"language": language},
                status=sys.stdout if verbose else None, warning=cast(TextIO, warnings), warningiserror=strict,
                parallel=jobs or cores(),
            )  # fmt: skip
            app.build()
    except SphinxError as error:
        raise CannotRun(f"{error.category}:\n{shortened(str(error), project)}") from error
    if strict and warnings.summary:
        print(warnings.summary, file=sys.stderr, flush=True)
    return app.statuscode


def _leave_out_execution() -> None:
    """Keep MyST-NB from loading Jupyter and a database for executing pages, which here it never does.

    That is a sixth of the time of a build in which nothing changed.
    """
    for name in ("cache", "direct", "inline"):
        module = ModuleType(f"myst_nb.core.execute.{name}")
        module.__file__ = __file__  # `inspect` asks every module for it
        module.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
        sys.modules.setdefault(module.__name__, module)


@contextlib.contextmanager
def _writing(book: Path) -> Iterator[None]:
    """Turn what goes wrong with the output folder into one message."""
    if not book.is_dir():
        raise CannotRun(f"{book}: no such folder")
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise CannotRun(f"can't write below {book / '_build'}: {error}") from error


@contextlib.contextmanager
def _locked(book: Path) -> Iterator[None]:
    """Wait until no other build is at work in the book. The lock ends with the process, however that ends."""
    from filelock import FileLock, Timeout

    folder = book / "_build"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "build.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another build is at work in {folder}; waiting until it is done", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
