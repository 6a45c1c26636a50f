"""Digits, separators, powers and scale words: the part of a written number that is the same in every language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from attnbook.claims.numerals.reading import Unreadable

_LARGEST_EXPONENT = 400  # beyond every float; larger ones would only build enormous integers
_SEPARATORS = ", \u00a0\u2009\u202f"  # comma, space, no-break space, thin space, narrow no-break space

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_FOLDED = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    ord("　"): " ", ord("−"): "-", ord("〜"): "~", ord("≦"): "≤", ord("≧"): "≥", ord("μ"): "µ",
}  # fmt: skip


def fold(text: str) -> str:
    """Full-width signs, the Unicode minus and the wave dash as their plain forms. Folding twice changes nothing."""
    return text.translate(_FOLDED)


@dataclass(frozen=True)
class Number:
    """A number as written: its value, and the unit of the last digit written (None where it is exact by nature)."""

    value: Fraction
    quantum: Fraction | None
    decimal: bool = False
    """Were digits written after a point? Then trailing zeros were meant."""
    scaled: bool = False
    """Does a scale word, a power, an exponent or Ki follow the digits?"""
    rounded: bool = False
    """Does half a unit of the last digit go unsaid? Not in a whole number, also of Ki, nor in a fraction or a word."""

    def half_unit(self) -> Fraction:
        """Half a unit of the last digit; 0 for a number that is exact by nature (a fraction, a number word)."""
        return Fraction(0) if self.quantum is None else self.quantum / 2

    def about(self) -> Fraction:
        """How far "about" reaches: half a unit of the last significant digit, never more than a tenth of the value."""
        tenth = abs(self.value) / 10
        if self.quantum is None:
            return tenth
        quantum = self.quantum
        if not self.decimal:
            digits = abs(self.value) / quantum
            while digits and digits % 10 == 0:
                digits, quantum = digits / 10, quantum * 10
        return min(quantum / 2, tenth)


_PLAIN = re.compile(
    rf"(?P<whole>[1-9][0-9]{{0,2}}(?:(?P<sep>[{_SEPARATORS}])[0-9]{{3}}(?:(?P=sep)[0-9]{{3}})*(?![0-9])|[0-9]*)|0)"
    r"(?:\.(?P<part>[0-9]+))?"
)
_EXPONENT = re.compile(r"[eE](?P<e>[-+]?[0-9]+)|\s?×\s?(?P<ten>10)(?P<power>\^[-+]?[0-9]+|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_POWER = re.compile(r"(?P<base>[0-9]{1,4})(?P<power>\^[-+]?[0-9]+|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_BINARY = re.compile(r"\s?(?P<prefix>[KMGT])i(?![A-Za-z])")
_BINARY_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}


def read_power(text: str, whole_text: str) -> tuple[Number, str] | None:
    """A bare power at the start, `2¹⁷` or `10^-6`: exact, but for powers of ten, which are a scale. And the rest."""
    match = _POWER.match(text)
    if match is None:
        return None
    base, power = int(match["base"]), _exponent(match["power"], whole_text)
    if base == 0:
        raise Unreadable(whole_text, "a power of 0", "write the number itself")
    value = Fraction(base) ** power
    if base == 10:
        return Number(value, value, scaled=True, rounded=True), text[match.end() :]
    return Number(value, None), text[match.end() :]


def read_plain(text: str, whole_text: str) -> tuple[Number, str] | None:
    """Digits at the start, with separators, a decimal part, an exponent or Ki/Mi/Gi; and the rest of the text."""
    match = _PLAIN.match(text)
    if match is None:
        return None
    separator, part = match["sep"], match["part"] or ""
    whole = match["whole"].replace(separator, "") if separator else match["whole"]
    quantum = Fraction(1, 10 ** len(part))
    value = Fraction(int(whole + part)) * quantum
    rest = text[match.end() :]
    if exponent := _EXPONENT.match(rest):
        scale = Fraction(10) ** _exponent(exponent["e"] or exponent["power"], whole_text)
        return Number(value * scale, quantum * scale, bool(part), scaled=True, rounded=True), rest[exponent.end() :]
    if binary := _BINARY.match(rest):
        scale = Fraction(1024) ** _BINARY_POWERS[binary["prefix"]]
        return Number(value * scale, quantum * scale, bool(part), scaled=True, rounded=bool(part)), rest[binary.end() :]
    return Number(value, quantum, bool(part), rounded=bool(part)), rest


def _exponent(written: str, whole_text: str) -> int:
    digits = written.lstrip("^").translate(_SUPERSCRIPTS)
    if len(digits) > 5 or abs(int(digits)) > _LARGEST_EXPONENT:
        raise Unreadable(
            whole_text, f"an exponent beyond ±{_LARGEST_EXPONENT}", "write a number that a measurement can have"
        )
    return int(digits)


def read_scaled(
    text: str, whole_text: str, small: Mapping[str, int], large: Mapping[str, int]
) -> tuple[Number, str] | None:
    """Digits with scale words at the start, `1億3500万`, `2만 5천`, `9百万`, `9 million`; and the rest of the text.

    `small` scale words (百, 千) may precede a `large` one (万, 億). Every group must be smaller than one unit of the
    scale word before it; the last group written carries the unit of the last digit. Only a number of one group may
    have decimals.
    """
    groups: list[tuple[Number, int, int]] = []
    rest = text
    while (step := read_plain(rest.lstrip(" ") if groups else rest, whole_text)) is not None:
        number, after = step
        if number.scaled:
            return None
        by, after = _scale_word(after, small)
        by_large, after = _scale_word(after, large)
        if not by and not by_large and not groups:
            return None  # a number without any scale word is not ours
        groups.append((number, by or 1, by_large))
        rest = after
        if not by and not by_large:
            break
    if not groups:
        return None
    if len(groups) > 1 and any(number.decimal for number, _, _ in groups):
        raise Unreadable(whole_text, "decimals in a number of several scale words", "write 1.35億 or 1億3500万")
    decimal = groups[-1][0].decimal
    return Number(_sum(groups, whole_text), _last_unit(groups), decimal, scaled=True, rounded=True), rest


def _sum(groups: list[tuple[Number, int, int]], whole_text: str) -> Fraction:
    total, section = Fraction(0), Fraction(0)
    section_below, total_below = None, None
    for number, by, by_large in groups:
        amount = number.value * by
        if section_below is not None and amount >= section_below:
            raise _disordered(whole_text)
        section, section_below = section + amount, by
        if by_large:
            if total_below is not None and section * by_large >= total_below:
                raise _disordered(whole_text)
            total, total_below = total + section * by_large, by_large
            section, section_below = Fraction(0), None
    if total_below is not None and section >= total_below:
        raise _disordered(whole_text)
    return total + section


def _last_unit(groups: list[tuple[Number, int, int]]) -> Fraction:
    number, by, by_large = groups[-1]
    return (number.quantum or Fraction(1)) * by * (by_large or 1)


def _disordered(whole_text: str) -> Unreadable:
    return Unreadable(whole_text, "scale words out of order", "write the larger one first, as in 1億3500万")


def _scale_word(text: str, words: Mapping[str, int]) -> tuple[int, str]:
    """The scale word at the start and the rest of the text; 0 where there is none."""
    rest = text.lstrip(" ")
    for word in sorted(words, key=len, reverse=True):
        if rest.startswith(word):
            return words[word], rest[len(word) :]
    return 0, text
