"""Numbers in prose that nobody owns: numerals that are no claim and that grammar does not exempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Numeral:
    """A numeral in a run of text: where it stands, and as written."""

    start: int
    end: int
    text: str


def find(text: str, language: str) -> list[Numeral]:
    """The numerals of a run of prose in a language that are neither a name, a reference nor a year."""
    return []
