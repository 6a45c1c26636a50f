"""`progress.json` in a reader's folder: what was begun, checked with which result, and how many hints were shown.

It is written whole or not at all. A file of that name that is not the lab's, or is damaged, is an error: it is never
written over, so nothing in it is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from attnbook.lab.texts import Language, say

NAME: Final = "progress.json"
FORMAT: Final = "attnbook-lab 1"


class FolderError(Exception):
    """The reader's folder can't be worked in. Its text, in English, says which file, and what would help."""

    def __init__(self, kind: str, /, **details: object) -> None:
        super().__init__(kind, details)

    def __str__(self) -> str:
        return self.told("en")

    def told(self, lang: Language) -> str:
        """The text in a language; the first argument names a phrase below `folder`."""
        kind, details = self.args
        return say(lang, f"folder.{kind}", **details)


@dataclass(frozen=True)
class Checked:
    """The last check of a file: the digest of what was checked, the result, the names of its mistakes, the day."""

    digest: str
    ok: bool
    mistakes: tuple[str, ...]
    date: str


@dataclass
class Progress:
    """What a folder's progress file holds. Files are named by their path below the folder, with forward slashes."""

    begun: dict[str, str] = field(default_factory=dict)
    """File to the digest of what `start` wrote."""
    checked: dict[str, Checked] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    """Key of a step to the hints shown so far."""


def load(folder: Path) -> Progress:
    """The progress kept in a folder; an empty one where there is no file. Raises FolderError for what can't be read."""
    path = folder / NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Progress()
    except OSError as error:
        raise FolderError("unreadable", path=path, why=error.strerror) from error
    except ValueError as error:
        raise FolderError("damaged", path=path, why=error) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        said = repr(data.get("format")) if isinstance(data, dict) and "format" in data else "no format"
        raise FolderError("foreign", path=path, expected=repr(FORMAT), got=said)
    try:
        return _read(data)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError("damaged", path=path, why=f"{type(error).__name__} {error}") from error


def is_lab(folder: Path) -> bool:
    """Does a folder hold a progress file of the lab?"""
    try:
        return (folder / NAME).is_file() and load(folder) is not None
    except FolderError:
        return False


@contextmanager
def changing(folder: Path) -> Iterator[Progress]:
    """The folder's progress, to be changed; kept when the block ends. Raises FolderError, and OSError on writing.

    Two checks at once wait for each other here, where the system has locks: neither loses what the other keeps.
    """
    with _alone(folder):
        progress = load(folder)
        before = _written(progress)
        yield progress
        if _written(progress) != before or not (folder / NAME).exists():
            _replace(folder / NAME, _written(progress))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; it leaves no file behind, and is let go when the process ends."""
    held = None
    with suppress(ImportError, OSError):  # Windows has no such lock, nor have some network drives
        import fcntl

        held = os.open(folder, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def _read(data: Mapping[str, Any]) -> Progress:
    progress = Progress()
    for name, digest in _typed(data["begun"], dict).items():
        progress.begun[name] = _typed(digest, str)
    for name, held in _typed(data["checked"], dict).items():
        mistakes = tuple(_typed(mistake, str) for mistake in _typed(_typed(held, dict)["mistakes"], list))
        digest, date = _typed(held["digest"], str), _typed(held["date"], str)
        progress.checked[name] = Checked(digest, _typed(held["ok"], bool), mistakes, date)
    for key, count in _typed(data["hints"], dict).items():
        progress.hints[key] = _typed(count, int)
    return progress


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value


def _written(progress: Progress) -> str:
    return json.dumps({"format": FORMAT, **asdict(progress)}, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
