"""What the lab says, in Japanese, Korean and English: the texts of a step, and the phrases around them.

A step's texts lie in a TOML file beside its module. Phrases that no step owns, and mistakes that any function can make,
lie in the TOML files beside this one. A text that is missing raises a KeyError that names it: nothing falls back to
another language unnoticed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, TypeAlias, cast

from attnbook.lab.steps import FILES

Language: TypeAlias = Literal["ja", "ko", "en"]

LANGUAGES: Final[tuple[Language, ...]] = ("ja", "ko", "en")


def language(wanted: str | None = None, environment: Mapping[str, str] | None = None) -> Language:
    """The language to speak: `wanted` ("ja", "ko_KR.UTF-8"), else the locale's, else English.

    The locale is the first of LC_ALL, LC_MESSAGES and LANG that is set, as everywhere; a locale of another language
    means English. Raises ValueError for a `wanted` that the lab does not speak.
    """
    if wanted is not None:
        found = _spoken(wanted)
        if found is None:
            raise ValueError(f"the lab speaks {', '.join(LANGUAGES)}, got {wanted!r}")
        return found
    environment = os.environ if environment is None else environment
    locale = next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")
    return _spoken(locale) or "en"


def _spoken(name: str) -> Language | None:
    """The language of a tag or a locale, if it is one of ours."""
    first = name.replace("-", "_").partition("_")[0].partition(".")[0].lower()
    return next((lang for lang in LANGUAGES if lang == first), None)


@dataclass(frozen=True)
class Texts:
    """The texts of a step. Where a name is unknown, methods raise a KeyError that says what there is.

    A step that `shares` the mistakes of others, by their keys, need not tell of them again.
    """

    key: str
    data: Mapping[str, Any]

    def title(self, lang: Language) -> str:
        """The step's title, without its key."""
        return self._text("title", lang)

    def goal(self, lang: Language) -> str:
        """What the exercise opens with."""
        return self._text("goal", lang)

    def function(self, name: str, lang: Language) -> str | None:
        """The docstring of a function; None in English, whose docstrings stand in the solution."""
        return None if lang == "en" else self._text(f"functions.{name}", lang)

    def part(self, key: str, lang: Language) -> str:
        """What a part is called whose function is tried in another part, too."""
        return self._text(f"parts.{key}", lang)

    def passed(self, key: str, lang: Language, **told: str) -> str:
        """What is said of a part that is right, with what its driver told filled in."""
        return _filled(self._text(f"passed.{key}", lang), told, f"passed.{key}")

    def hole(self, name: str, lang: Language) -> str:
        """The comment in place of the lines that the reader writes."""
        return self._text(f"holes.{name}", lang)

    def hints(self, lang: Language) -> tuple[str, ...]:
        """The hints, from a nudge to nearly the answer."""
        return tuple(
            _in(entry, lang, f"step {self.key}: hint {stage}") for stage, entry in enumerate(self.data["hints"], 1)
        )

    def mistake(self, name: str, lang: Language, /, **details: str) -> str:
        """What a mistake is, with `{details}` filled in; one that any function can make is found, too."""
        entry = self._mistake(name)
        return _filled(_in(entry, lang, f"step {self.key}: mistakes.{name}"), details, f"mistakes.{name}")

    def page(self, name: str) -> str | None:
        """Where the book explains a mistake, as "03-scaling#scaling-idea"; None for one that needs no page."""
        found = self._mistake(name).get("page")
        return None if found is None else str(found)

    def _mistake(self, name: str) -> Mapping[str, str]:
        own: Mapping[str, Mapping[str, str]] = self.data.get("mistakes", {})
        shared = (texts(key).data.get("mistakes", {}) for key in self.data.get("shares", ()))
        for found in (own, *shared, phrases().get("mistakes", {})):
            if name in found:
                return cast("Mapping[str, str]", found[name])
        raise KeyError(f"step {self.key} has no text of the mistake {name}; of its own: {', '.join(own)}")

    def _text(self, path: str, lang: Language) -> str:
        return _in(_at(self.data, path, f"step {self.key}"), lang, f"step {self.key}: {path}")


@cache
def texts(key: str | int) -> Texts:
    """The texts of a step, as `texts(1)` or `texts("capstone")`; a KeyError names the steps that there are."""
    if str(key) not in FILES:
        raise KeyError(f"there is no step {key!r} in the lab: it has {', '.join(FILES)}")
    file = resources.files("attnbook.lab.steps") / f"{FILES[str(key)]}.toml"
    return Texts(str(key), tomllib.loads(file.read_text(encoding="utf-8")))


@cache
def phrases() -> Mapping[str, Any]:
    """What the TOML files beside this module hold, together. Raises ValueError where two have the same table."""
    found: dict[str, Any] = {}
    for file in sorted(resources.files("attnbook.lab").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
            if twice := found.keys() & tables.keys():
                raise ValueError(f"{file.name}: [{twice.pop()}] stands in another of the lab's files, too")
            found |= tables
    return found


def say(lang: Language, key: str, /, **details: object) -> str:
    """A phrase by its path ("status.passed"), with `{details}` filled in.

    Raises KeyError where there is no such phrase, or it asks for a detail that is not given.
    """
    return _filled(_in(_at(phrases(), key, "the lab"), lang, key), details, key)


def _at(tables: Mapping[str, Any], path: str, whose: str) -> Mapping[str, Any]:
    """The table at a path with dots."""
    found: Any = tables
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise KeyError(f"{whose} has no text {path}")
        found = found[name]
    return cast("Mapping[str, Any]", found)


def _in(entry: Mapping[str, Any], lang: Language, place: str) -> str:
    if not isinstance(entry.get(lang), str):
        raise KeyError(f"{place} is not there in {lang}")
    return str(entry[lang]).strip()


def _filled(text: str, details: Mapping[str, object], place: str) -> str:
    try:
        return text.format(**details)  # a brace that is meant is doubled
    except (KeyError, IndexError, ValueError) as error:
        raise KeyError(f"{place} asks for a detail that is not given: {error}") from error
