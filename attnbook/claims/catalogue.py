"""Where a message stands in a `.po` file, and whether it is fuzzy or not translated: what a translator must mend."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from babel.messages import pofile
from sphinx.environment import BuildEnvironment
from sphinx.util.i18n import docname_to_domain


@dataclass(frozen=True)
class PoMessage:
    """A message of a catalogue: its file, the line of its msgid, and its state."""

    path: Path
    line: int
    state: str
    """"translated", "fuzzy", "untranslated", "missing" (not in the file), "no catalogue" or "unreadable"."""


def find_message(env: BuildEnvironment, docname: str, text: str) -> PoMessage:
    """The message of a page in the build's language, as its catalogue has it.

    Several `locale_dirs` are searched as Sphinx does; where none has the message, the place to add it is named.
    """
    first: Path | None = None
    for path in _paths(env, docname):
        first = first or path
        if not path.is_file():
            continue
        messages = _read(path, path.stat().st_mtime_ns)
        if messages is None:
            return PoMessage(path, 1, "unreadable")
        if text in messages:
            line, state = messages[text]
            return PoMessage(path, line, state)
    path = first or Path(env.srcdir) / "locales"
    return PoMessage(path, 1, "missing" if path.is_file() else "no catalogue")


def has_catalogues(env: BuildEnvironment) -> bool:
    """Is there any catalogue for the build's language?"""
    language = str(env.config.language)
    for directory in env.config.locale_dirs:
        folder = Path(env.srcdir) / directory / language / "LC_MESSAGES"
        if folder.is_dir() and any(path.suffix in (".po", ".mo") for path in folder.rglob("*")):
            return True
    return False


def _paths(env: BuildEnvironment, docname: str) -> Iterator[Path]:
    domain = docname_to_domain(docname, env.config.gettext_compact)
    for directory in env.config.locale_dirs:
        yield Path(env.srcdir) / directory / str(env.config.language) / "LC_MESSAGES" / f"{domain}.po"


@functools.lru_cache(maxsize=64)
def _read(path: Path, _changed: int) -> Mapping[str, tuple[int, str]] | None:
    try:
        with path.open("rb") as file:
            catalogue = pofile.read_po(file, ignore_obsolete=True)
    except (OSError, ValueError, pofile.PoFileError):
        return None
    messages = {}
    for message in catalogue:
        if isinstance(message.id, str) and message.id:
            state = "fuzzy" if message.fuzzy else "translated" if message.string else "untranslated"
            messages[message.id] = (message.lineno or 1, state)
    return messages
