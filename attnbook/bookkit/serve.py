"""The author's loop: serve the book on this machine, build it again after every change, reload the page.

Watching, serving and reloading are sphinx-autobuild's; what it does after a change is our build, so that an edit of a
chapter or of the package executes just what depends on it, and a failure is said as everywhere else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import attnbook

IGNORED = r"(/_build/|/__pycache__/|\.pyc$|/\.[^/]*$|~$)"
"""What a build itself writes, and editors' own files."""

PACKAGE = Path(attnbook.__file__).parent


class Rebuild:
    """What happens after a change, in place of sphinx-autobuild's own step; it sends this to another process."""

    book = Path()
    language = ""

    def __init__(self, *arguments: object, url_host: str, **options: object) -> None:
        self.command = [sys.executable, "-m", "attnbook.bookkit", "build", str(self.book), "--language", self.language]
        self.address = f"http://{url_host}"
        self.roots = (Path.cwd(), self.book.resolve().parent, PACKAGE.resolve().parent)

    def __call__(self, *, changed_paths: Sequence[Path]) -> None:
        """Build, and say how it went."""
        # What editors and tools put there for a moment is gone by now; one save may come as several changes.
        kept = dict.fromkeys(self._shown(path) for path in changed_paths if path.is_file())
        for name in kept or ("files are gone",) * bool(changed_paths):
            print(f"changed: {name}", flush=True)
        failed = subprocess.run(self.command).returncode
        print(f"{'the pages are older than their sources; ' if failed else ''}serving {self.address}", flush=True)

    def _shown(self, path: Path) -> str:
        root = next((root for root in self.roots if path.is_relative_to(root)), None)
        return (path.relative_to(root) if root else path).as_posix()


def serve(book: Path, *, language: str, host: str, port: int, with_parent: bool = False) -> int:
    """Serve until interrupted, or `with_parent` until the process that started this one has ended.

    Raises ModuleNotFoundError where sphinx-autobuild is not installed.
    """
    from sphinx_autobuild import __main__ as autobuild  # type: ignore[import-untyped]

    Rebuild.book, Rebuild.language = book, language
    autobuild.Builder = Rebuild
    if with_parent:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    output = book / "_build" / "html" / language
    arguments = ["--host", host, "--port", str(port), "--watch", str(PACKAGE), "--re-ignore", IGNORED]
    autobuild.main([str(book), str(output), *arguments])
    return 0


def _end_with(parent: int) -> None:
    """Ask this process to end once its parent has: a task runner that is terminated does not pass that on."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
