"""What a chapter depended on: names of files that do not change when the checkout moves, and their digests.

A file of the package is named `attnbook/…`, one below the book's folder `book:…`, any other by its absolute path.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import attnbook

ABSENT = "absent"
STARTUP = Path(__file__).parent / "kernel"
"""Put before all others on PYTHONPATH, this folder has every Python process of a chapter traced."""


class Changed(Exception):
    """Files changed while the chapter ran: what it measured belongs to no state of them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class Files:
    """Names and digests of files, for a book and the package that this process itself was started with.

    A digest is computed once; make a new instance to look again.
    """

    def __init__(self, book: Path) -> None:
        self.book = book.resolve()
        self.package = Path(attnbook.__file__).resolve().parent
        self._digests: dict[str, str] = {}

    def name(self, path: str) -> str:
        """The name of a file given by its absolute path."""
        full = Path(path)
        if full.is_relative_to(self.book):
            return f"book:{full.relative_to(self.book).as_posix()}"
        if full.is_relative_to(self.package):
            return full.relative_to(self.package.parent).as_posix()
        return full.as_posix()

    def path(self, name: str) -> Path:
        """The inverse of `name`."""
        below_book = name.removeprefix("book:")
        return self.book / below_book if below_book != name else self.package.parent / name

    def ours(self, path: str) -> bool:
        """Is the file of the package or below the book's folder? What traces it is neither."""
        full = Path(path)
        return (full.is_relative_to(self.package) or full.is_relative_to(self.book)) and full.parent != STARTUP

    def shown(self, path: str) -> str:
        """The path as messages give it: from the project's folder, or from where packages are installed."""
        full = Path(path)
        for folder in (self.book.parent, self.package.parent):
            if full.is_relative_to(folder):
                path = full.relative_to(folder).as_posix()
        return path.rpartition("-packages/")[2]

    def neutral(self, text: str) -> str:
        """A text without the folders in which this machine keeps the project, packages and the user's files."""
        text = re.sub(r"\S*/ipykernel_\d+/\d+\.py", "cell", text)
        packages = sorted({path for path in sys.path if path.endswith("-packages")}, reverse=True)
        for folder in (*packages, self.package.parent, self.book.parent, Path.home()):
            text = text.replace(f"{folder}{os.sep}", "")
        return text

    def digest(self, name: str) -> str:
        """The SHA-256 of the content as it is now, or `ABSENT`."""
        if name not in self._digests:
            try:
                with self.path(name).open("rb") as file:
                    self._digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                self._digests[name] = ABSENT
        return self._digests[name]

    def unchanged(self, depends: Mapping[str, str]) -> bool:
        """Has every file the content that it had?"""
        return all(self.digest(name) == digest for name, digest in depends.items())

    def environment(self, trace: Path) -> dict[str, str]:
        """Variables that have the processes of a chapter write what they use to `trace`.

        They also make them import the package that this process uses, wherever it lies.
        """
        search = [str(STARTUP)]
        if self.package.parent.name not in ("site-packages", "dist-packages"):
            search.append(str(self.package.parent))
        if os.environ.get("PYTHONPATH"):
            search.append(os.environ["PYTHONPATH"])
        return {
            "PYTHONPATH": os.pathsep.join(search),
            "ATTNBOOK_TRACE": str(trace),
            "ATTNBOOK_BOOK": str(self.book),
            "ATTNBOOK_ROOTS": os.pathsep.join((str(self.package), str(self.book))),
        }

    def used(self, trace: Path) -> dict[str, str]:
        """What a finished chapter depended on, from its trace: name to digest.

        Raises Changed when a file had two contents while the chapter ran, or has another one now.
        """
        digests: dict[str, str] = {}
        changed: set[str] = set()
        for line in trace.read_text(encoding="utf-8").splitlines():
            use = json.loads(line)
            name = self.name(use["file"])
            if digests.setdefault(name, use["digest"]) != use["digest"]:
                changed.add(name)
        now = Files(self.book)
        changed.update(name for name, digest in digests.items() if now.digest(name) != digest)
        if changed:
            raise Changed(sorted(changed))
        return dict(sorted(digests.items()))
