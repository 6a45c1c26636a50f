"""The author's loop: serve the book on this machine, build it again after every change, reload the page.

Watching, serving and reloading are sphinx-autobuild's; what it does after a change is our build, so that an edit of a
chapter or of the package executes just what depends on it, and a failure is said as everywhere else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attnbook

IGNORED = r"(/_build/|/__pycache__/|\.pyc$|/\.[^/]*$|~$)"
"""What a build itself writes, and editors' own files."""


class Rebuild:
    """What happens after a change, in place of sphinx-autobuild's own step; it sends this to another process."""

    book = Path()
    language = ""

    def __init__(self, *arguments: object, url_host: str, **options: object) -> None:
        self.command = [sys.executable, "-m", "attnbook.bookkit", "build", str(self.book), "--language", self.language]
        self.address = f"http://{url_host}"

    def __call__(self, *, changed_paths: Sequence[Path]) -> None:
        """Build, and say how it went."""
        for path in changed_paths:
            print(f"changed: {path}", flush=True)
        failed = subprocess.run(self.command).returncode
        print(f"{'the pages are older than their sources; ' if failed else ''}serving {self.address}", flush=True)


def serve(book: Path, *, language: str, host: str, port: int) -> int:
    """Serve until interrupted. Raises ModuleNotFoundError where sphinx-autobuild is not installed."""
    from sphinx_autobuild import __main__ as autobuild  # type: ignore[import-untyped]

    Rebuild.book, Rebuild.language = book, language
    autobuild.Builder = Rebuild
    package = str(Path(attnbook.__file__).parent)
    output = book / "_build" / "html" / language
    arguments = ["--host", host, "--port", str(port), "--watch", package, "--re-ignore", IGNORED]
    autobuild.main([str(book), str(output), *arguments])
    return 0
