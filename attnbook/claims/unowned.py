"""Numbers in prose that nobody owns: numerals that are no claim and that grammar does not exempt. Pure.

`exempt` holds the grammar of names, references and years; `stated` tells results from definitions in code and maths.
Small counts in words (三行, 세 줄, three lines) are prose; large amounts in words (九百万, 구백만, nine million) are
numerals like any other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from attnbook.claims.exempt import exempt_spans, is_start_of_name
from attnbook.claims.numerals.digits import fold
from attnbook.claims.numerals.english import ENGLISH
from attnbook.claims.stated import states_result

__all__ = ["Numeral", "find", "states_result"]

_NUMERAL = re.compile(r"(?<![0-9])[0-9]+(?:[.,][0-9]+)*(?:[eE][-+]?[0-9]+(?![0-9]))?")
_RAISED = re.compile(r"(?<![A-Za-zÀ-ɏͰ-Ͽ0-9)\]⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺₀-₉\ufffc])[⁻⁺]?(?:[⁰¹²³⁴⁵⁶⁷⁸⁹]+|[₀-₉]+)")
"""Raised or lowered digits that are raised over nothing."""
_SIGN = re.compile(r"(?:^|(?<=[^A-Za-z0-9_)\]]))[-+±]$")
_SPELLED = {
    "ja": re.compile(
        r"[一二三四五六七八九十〇]+[百千万億兆][一二三四五六七八九十〇百千万億兆]*|[百千][万億兆](?!分の)"
        r"|[一二三四五六七八九十百〇]+(?=パーセント|％|%)"
    ),
    "ko": re.compile(
        r"(?<![가-힣])(?:[일이삼사오육칠팔구]?[십백천][일이삼사오육칠팔구십백천]*[만억조]"
        r"|[일이삼사오육칠팔구십백]+(?= ?퍼센트))"
    ),
    "en": re.compile(
        rf"\b(?:{'|'.join(sorted(ENGLISH.number_words, key=len, reverse=True))})"
        r"(?= (?:hundred|thousand|million|billion|trillion|percent|per cent)\b)",
        re.IGNORECASE,
    ),
}


@dataclass(frozen=True)
class Numeral:
    """A numeral in a run of text: where it stands, and as written."""

    start: int
    end: int
    text: str


def find(text: str, language: str) -> list[Numeral]:
    """The numerals of a run of prose in a language that are neither part of a name nor a reference nor a year.

    `text` is prose without its claims, code and maths, each of which stands as one character that is neither a letter
    nor a digit. Raises KeyError for a language that has no lexicon.
    """
    plain = _plain_digits(text)
    spans = list(exempt_spans(plain, language))
    found = [
        (start, end)
        for start, end in _numerals(plain)
        if not any(low <= start < high for low, high in spans) and not is_start_of_name(plain, end)
    ]
    found += [match.span() for match in _SPELLED[language].finditer(plain)]
    return [Numeral(start, end, text[start:end]) for start, end in sorted(found)]


def _plain_digits(text: str) -> str:
    """The text with every digit of every script as 0 to 9, character for character: no digit hides in a font."""
    folded = fold(text)
    return "".join(_plain_digit(character) for character in folded)


def _plain_digit(character: str) -> str:
    if character.isascii():
        return character
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    return "-" if character in "‐‑" else character


def _numerals(plain: str) -> Iterator[tuple[int, int]]:
    for match in _NUMERAL.finditer(plain):
        start = match.start()
        yield (start - 1 if start and _SIGN.search(plain[max(0, start - 2) : start]) else start), match.end()
    yield from (match.span() for match in _RAISED.finditer(plain))
    for position, character in enumerate(plain):
        if character in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒":
            yield position, position + 1
