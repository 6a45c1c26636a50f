"""Words right beside a claim that belong inside it: a unit, a scale word, "about", a sign, a comparison.

Left outside, they change what the reader reads and not what is judged. They are found by reading: whatever beside the
written text makes another readable number of it belongs to it. So the list of units and words is the reader's own.
"""

from __future__ import annotations

import re
import unicodedata

from attnbook.claims.numerals import Reading, Unreadable, read

_WIDTH = 14
_SIGN_AFTER = re.compile(r"\^[-+]?[0-9]+|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+|[‰‱]")
_SIGN_BEFORE = re.compile(r"(?:^|[^\s\ufffc])\s?([≠≈≒≃±∓~〜～])\s?$")
"""Signs that no number is read with; between two claims, 〜 makes a range of them."""
_PARTICLES = (
    "은", "는", "이", "가", "을", "를", "의", "에", "로", "으로", "와", "과", "도", "만", "까지", "부터", "보다", "입",
    "인", "라", "씩", "쯤", "정", "다", "면", "나", "더", "였", "가량",
)  # fmt: skip
"""Beginnings of what may follow a Korean noun: 배 in `3배로` is a unit, in `3 배치` it is not."""


def outside(text: str, before: str, after: str, language: str) -> str:
    """The words right before or after a written number that belong inside its role; "" if there are none.

    A counter (`3`個) does not change the number and may stay outside. Where the text itself cannot be read, nothing is
    said: that is reported already.
    """
    alone = _read(text, language)
    if alone is None:
        return ""
    if sign := _SIGN_AFTER.match(after):
        return sign[0]
    if sign := _SIGN_BEFORE.search(before):
        return sign[1]
    for length in range(min(_WIDTH, len(after)), 0, -1):
        piece = after[:length]
        if piece == piece.rstrip() and not _goes_on(piece, after[length:]) and _changes(alone, text + piece, language):
            return piece.strip()
    for length in range(min(_WIDTH, len(before)), 0, -1):
        piece = before[-length:]
        if (
            piece == piece.lstrip()
            and not _runs_in(before[:-length], piece)
            and _changes(alone, piece + text, language)
        ):
            return piece.strip()
    return ""


def _read(text: str, language: str) -> Reading | None:
    try:
        return read(text, language)
    except Unreadable:
        return None


def _changes(alone: Reading, text: str, language: str) -> bool:
    longer = _read(text, language)
    return longer is not None and (longer.unit != alone.unit or not longer.denotes(alone))


def _goes_on(piece: str, rest: str) -> bool:
    """Is the piece cut in the middle of a word?"""
    if not rest or _script(piece[-1]) != _script(rest[0]):
        return False
    if _script(piece[-1]) == "HANGUL":
        return not rest.startswith(_PARTICLES)
    return _script(piece[-1]) != ""


def _runs_in(rest: str, piece: str) -> bool:
    """Does the piece begin in the middle of a word, or is its sign a hyphen in a name?"""
    if not rest:
        return False
    if piece[0] in "-−+±~":
        return rest[-1].isalnum()
    return _script(piece[0]) == _script(rest[-1]) != ""


def _script(character: str) -> str:
    """The script that makes two neighbouring characters one word; "" for signs and spaces."""
    if not character.isalnum():
        return ""
    if character.isdigit():
        return "DIGIT"
    name = unicodedata.name(character, "")
    return next((script for script in ("CJK", "HANGUL", "KATAKANA", "HIRAGANA") if name.startswith(script)), "LETTER")
