"""The reader's folder: exercises written into it, never over existing work, and how far the reader has come.

A step has a Python file and a notebook. Whether one was edited is told by its code alone: Jupyter writes a notebook
anew, and an editor may take blanks away.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.util import decode_source
from pathlib import Path, PurePosixPath
from typing import Final

from attnbook.lab.exercise import exercise_notebook, exercise_source
from attnbook.lab.notebook import NotebookError, code_in, notebook_source
from attnbook.lab.progress import Checked, FolderError, Progress, changing, is_lab, load
from attnbook.lab.steps import FILES, step
from attnbook.lab.texts import LANGUAGES, Language

SUFFIXES: Final = (".py", ".ipynb")


class State(StrEnum):
    """How far a file or a step is, the least first."""

    MISSING = "missing"
    UNTOUCHED = "not begun"
    EDITED = "edited, not checked"
    FAILED = "failed"
    CHANGED = "changed since it passed"
    PASSED = "passed"


@dataclass(frozen=True)
class Started:
    """What became of one file: its path below the folder, and whether it was written or left alone."""

    name: str
    written: bool


@dataclass(frozen=True)
class FileStatus:
    """One file of a step."""

    name: str
    state: State
    mistakes: tuple[str, ...] = ()
    date: str = ""


@dataclass(frozen=True)
class StepStatus:
    """A step: its own state is that of the file that is furthest."""

    key: str
    files: tuple[FileStatus, ...]
    hints: int

    @property
    def state(self) -> State:
        """See the class."""
        return self.furthest.state

    @property
    def furthest(self) -> FileStatus:
        """The file that is furthest, the Python file where both are as far."""
        order = list(State)
        return max(self.files, key=lambda file: order.index(file.state))


def names(key: str) -> tuple[str, ...]:
    """The files of a step, below the folder."""
    wanted = step(key)
    return tuple(str(PurePosixPath(wanted.folder, f"{wanted.stem}{suffix}")) for suffix in SUFFIXES)


def located(folder: Path, key: str) -> tuple[str, ...]:
    """The files of a step in a folder; one that was downloaded lies in the folder itself, whatever its own place is."""
    bases = {name: PurePosixPath(name).name for name in names(key)}
    return tuple(base if (folder / base).is_file() else name for name, base in bases.items())


def is_worked_in(folder: Path) -> bool:
    """Is a folder the lab's: does it hold its progress, or a file of one of its steps?"""
    return is_lab(folder) or any((folder / name).is_file() for key in FILES for name in located(folder, key))


def start(folder: Path, lang: Language, steps: Sequence[str] | None = None) -> list[Started]:
    """Write the exercises of the steps (default: all) that the folder lacks, and say of each file what became of it.

    What is there is left alone, whatever it is: also a link that leads nowhere. Raises FolderError where the folder
    can't be one or a folder below it is a link, KeyError for an unknown step, OSError where writing fails.
    """
    wanted = [(step(key).key, name) for key in (FILES if steps is None else steps) for name in names(key)]
    if folder.exists() and not folder.is_dir():
        raise FolderError("file", folder=folder)
    load(folder)  # a progress file of somebody else's stops us before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    done = []
    with changing(folder) as progress:
        for key, name in wanted:
            path = folder / name
            if path.parent != folder:
                if path.parent.is_symlink():
                    raise FolderError("link", path=path.parent)
                path.parent.mkdir(exist_ok=True)
            text = _first(key, path.suffix, lang)
            written = _create(path, text)
            if written:
                progress.begun[name] = _digest(text, path.suffix)
            done.append(Started(name, written))
    return done


def edited(path: Path, key: str, progress: Progress | None = None) -> bool:
    """Is a step's file different from what `start` writes in any language, or once wrote here?"""
    begun = {_digest(_first(step(key).key, path.suffix, lang), path.suffix) for lang in LANGUAGES}
    if progress is not None:
        begun |= {digest for name, digest in progress.begun.items() if PurePosixPath(name).name == path.name}
    return digest_of(path) not in begun


def status(folder: Path) -> list[StepStatus]:
    """How far each step is, in the order of the lab. Raises FolderError where there is no folder, or it is not ours."""
    if not folder.is_dir():
        raise FolderError("file" if folder.exists() else "none", folder=folder)
    progress = load(folder)
    return [
        StepStatus(
            key,
            tuple(_status(folder, key, name, progress) for name in located(folder, key)),
            progress.hints.get(key, 0),
        )
        for key in FILES
    ]


def keep(folder: Path, name: str, digest: str, *, ok: bool, mistakes: tuple[str, ...]) -> None:
    """Keep the result of a check. Raises FolderError, OSError where it can't be kept."""
    with changing(folder) as progress:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        progress.checked[name] = Checked(digest, ok, mistakes, today)


def digest_of(path: Path) -> str:
    """Of a file's code: equal for two that differ in outputs, ends of lines or blanks at their ends only."""
    if path.suffix == ".ipynb":
        try:
            return _hash(notebook_source(path))
        except NotebookError:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    try:
        return _hash(decode_source(path.read_bytes()))
    except (SyntaxError, UnicodeDecodeError):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _status(folder: Path, key: str, name: str, progress: Progress) -> FileStatus:
    path = folder / name
    if not path.is_file():
        return FileStatus(name, State.MISSING)
    held = progress.checked.get(name)
    try:
        same = held is not None and held.digest == digest_of(path)
        if held is None or (not held.ok and not same):
            return FileStatus(name, State.EDITED if edited(path, key, progress) else State.UNTOUCHED)
    except OSError:  # it can't be read; a check of it says why
        return FileStatus(name, State.EDITED)
    if not same:
        return FileStatus(name, State.CHANGED, (), held.date)
    return FileStatus(name, State.PASSED if held.ok else State.FAILED, held.mistakes, held.date)


def _first(key: str, suffix: str, lang: Language) -> str:
    return exercise_source(key, lang) if suffix == ".py" else exercise_notebook(key, lang)


@cache
def _digest(text: str, suffix: str) -> str:
    """`digest_of` a file that holds this text."""
    return _hash(code_in(text) if suffix == ".ipynb" else text)


def _hash(code: str) -> str:
    lines = "\n".join(line.rstrip() for line in code.strip().splitlines())
    return hashlib.sha256(lines.encode("utf-8", errors="surrogatepass")).hexdigest()


def _create(path: Path, text: str) -> bool:
    """Write a new file, whole or not at all; False where there is something of that name already."""
    if os.path.lexists(path):
        return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        try:
            os.link(temporary, path)  # unlike a renaming, it fails where somebody was quicker
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
    finally:
        temporary.unlink(missing_ok=True)
    return True
