"""Texts of the lab in lines of a page's width, in languages with blanks between words and without."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from unicodedata import east_asian_width

WIDTH: Final = 88
"""Columns of a line of an exercise's texts, as of a code cell in the book."""

_SIGNS: Final = ("+", "-", "−", "/", "=", "·", "×", "@", "<", "≤", "d", "x", "v", "≈")
"""Words of a formula that a line does not end with, nor begin with."""

_NOT_FIRST: Final = "、。）」』ー々っゃゅょッャュョァィゥェォぁぃぅぇぉ"
"""What no Japanese line begins with."""


def wrapped(text: str, taken: int = 0) -> list[str]:
    """The lines of a text, none wider than `WIDTH` less what is `taken`; an ideograph counts as two letters.

    A line that ends within a sentence goes on with the next; other breaks stay.
    """
    within = re.compile(r"(?<=[^\s.。:：?!)）|])\n(?=[^\s*|-])")
    joined = within.sub(lambda at: "" if _is_japanese(text[at.start() - 1]) else " ", text)
    return [part for line in joined.splitlines() for part in fitted(line, taken)]


def fitted(line: str, taken: int = 0) -> Iterator[str]:
    """One line as lines none of which is wider than `WIDTH` less what is `taken`, each with the indent of the first."""
    width = WIDTH - taken
    indent = line[: len(line) - len(line.lstrip())]
    while columns(line) > width:
        fitting = next(n for n in range(len(line), 0, -1) if columns(line[:n]) <= width)
        breaks = [n for n in range(len(indent) + 1, fitting + 1) if _may_break(line, n)]
        # After a comma or a full stop reads better, where it leaves no short line.
        good = [n for n in breaks if line[n - 1] in "、。" and columns(line[:n]) > width * 0.6]
        if not breaks:
            break
        place = max(good or breaks)
        yield line[:place].rstrip()
        line = indent + line[place:].lstrip()
    yield line.rstrip()


def _may_break(line: str, place: int) -> bool:
    """May a line end before this place? After a word; not within brackets, nor beside a sign of a formula."""
    before, after = line[place - 1], line[place : place + 1]
    if sum(line.count(sign, 0, place) for sign in "(（「") != sum(line.count(sign, 0, place) for sign in ")）」"):
        return False
    if before == " ":
        around = (line[: place - 1].rpartition(" ")[2], line[place:].partition(" ")[0])
        return after != " " and not any(word in _SIGNS for word in around)
    return after != "" and _is_japanese(before) and _is_japanese(after) and after not in _NOT_FIRST


def _is_japanese(sign: str) -> bool:
    """Kana, ideographs and their punctuation: written without blanks."""
    return "ぁ" <= sign <= "ヿ" or "一" <= sign <= "鿿" or sign in "、。（）「」"


def columns(text: str) -> int:
    """How wide a text is in a terminal: an ideograph, a syllable of Korean and full-width signs take two columns."""
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text)
