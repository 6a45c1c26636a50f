"""Hints in stages: from a nudge to nearly the answer, one more each time that one is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnbook.lab.progress import FolderError, changing, is_lab, load
from attnbook.lab.steps import step as step_of
from attnbook.lab.texts import Language, language, say, texts

_shown: dict[str, int] = {}
"""Hints shown so far by a notebook that is in no folder of the lab."""


@dataclass(frozen=True)
class Hint:
    """A hint: stage from 1 to count. `print(hint)` in a terminal; a notebook shows it by itself."""

    step: str
    stage: int
    count: int
    text: str
    lang: Language

    def __str__(self) -> str:
        return f"{self.heading()}\n{self.text}"

    def _repr_markdown_(self) -> str:
        return f"**{self.heading()}**\n\n{self.text}"

    def heading(self) -> str:
        """Which hint it is, and how many there are."""
        return say(self.lang, "hint.heading", stage=self.stage, count=self.count)


def hint(step: int | str, stage: int | None = None, *, lang: str | None = None) -> Hint:
    """The next hint of a step, as `hint(1)` in a notebook; after the last one, the last again.

    stage: a certain one, from 1. lang: "ja", "ko" or "en", else the locale's. In a folder that `attnbook lab start`
    made, it is remembered there which hints were shown.

    Raises KeyError for an unknown step, ValueError for a stage that there is not.
    """
    key = step_of(step).key
    here = Path.cwd()
    if is_lab(here):
        try:
            return hint_in(here, key, stage, lang=lang)
        except OSError:  # it can be read and not written: the hint is what was asked for
            pass
    found = _hint(key, stage, _shown.get(key, 0), language(lang))
    _shown[key] = max(found.stage, _shown.get(key, 0))
    return found


def hint_in(folder: Path, key: str, stage: int | None = None, *, lang: str | None = None) -> Hint:
    """`hint`, remembered in a folder of the lab. Raises FolderError where its progress can't be read, OSError."""
    found = hint_of(folder, key, stage, lang=lang)
    with changing(folder) as progress:
        progress.hints[key] = max(found.stage, progress.hints.get(key, 0))
    return found


def hint_of(folder: Path, key: str, stage: int | None = None, *, lang: str | None = None) -> Hint:
    """The next hint by what a folder remembers, which is left as it is. Raises FolderError where it can't be read."""
    if not folder.is_dir():
        raise FolderError("none", folder=folder)
    return _hint(key, stage, load(folder).hints.get(key, 0), language(lang))


def _hint(key: str, stage: int | None, shown: int, lang: Language) -> Hint:
    hints = texts(key).hints(lang)
    stage = min(shown + 1, len(hints)) if stage is None else stage
    if not 1 <= stage <= len(hints):
        raise ValueError(f"step {key} has hints 1 to {len(hints)}, got {stage}")
    return Hint(key, stage, len(hints), hints[stage - 1], lang)
