"""Reading: the grammar of a number in prose.

A text is `[bound or about] quantity [bound or about]`, a range of two quantities, or nan or inf; a quantity is digits,
a fraction or a small number word, then a unit or a counter, and then nothing. Whatever does not fit exactly is
Unreadable; `refuse` says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeVar

from attnbook.claims.numerals import digits
from attnbook.claims.numerals.digits import Number
from attnbook.claims.numerals.english import ENGLISH
from attnbook.claims.numerals.japanese import JAPANESE
from attnbook.claims.numerals.korean import KOREAN
from attnbook.claims.numerals.lexicon import SYMBOL_BOUNDS, SYMBOL_UNITS, Lexicon
from attnbook.claims.numerals.reading import Comparison, Reading, Unreadable
from attnbook.claims.numerals.refuse import refusal
from attnbook.claims.numerals.units import UNITS

LEXICONS: Mapping[str, Lexicon] = {lexicon.language: lexicon for lexicon in (JAPANESE, KOREAN, ENGLISH)}

_LONGEST = 80
_FRACTION = re.compile(r"(?P<over>[0-9][0-9,]*)\s?/\s?(?P<under>[0-9][0-9,]*)")
_RANGE = re.compile(r"(?P<low>[^~–]+)[~–](?P<high>[^~–]+)")
_SPECIAL: Mapping[str, Literal["nan", "inf", "-inf"]] = {
    "nan": "nan", "inf": "inf", "+inf": "inf", "∞": "inf", "+∞": "inf", "-inf": "-inf", "-∞": "-inf",
}  # fmt: skip
_Meaning = TypeVar("_Meaning")


def read(text: str, language: str) -> Reading:
    """What a written number means in a language ("ja", "ko", "en").

    Raises Unreadable for a text that is not exactly one number of that language's grammar, ValueError for a language
    that has no lexicon.
    """
    lexicon = LEXICONS.get(language)
    if lexicon is None:
        raise ValueError(f"no numerals for language {language!r}: there are {', '.join(LEXICONS)}")
    if len(text) > _LONGEST:
        raise Unreadable(text[:_LONGEST] + "…", f"{len(text)} characters long", "put only the number into the role")
    reading = _read(text, digits.fold(text).strip(), lexicon)
    if reading is None:
        raise _foreign(text, lexicon) or refusal(text, digits.fold(text).strip(), lexicon)
    return reading


def _foreign(text: str, lexicon: Lexicon) -> Unreadable | None:
    """The complaint that a text is a number of another language, where it is one."""
    for other in LEXICONS.values():
        try:
            if other is lexicon or _read(text, digits.fold(text).strip(), other) is None:
                continue
        except Unreadable:
            continue
        reason, hint = f"it is a number in the language {other.language!r}", f"write it in {lexicon.language!r}"
        return Unreadable(text, reason, f"{hint}, the page's")
    return None


def _read(text: str, plain: str, lexicon: Lexicon) -> Reading | None:
    if special := _SPECIAL.get(plain.lower()):
        return Reading(text, "special", "=", None, None, None, special=special)
    bounds_before = {**SYMBOL_BOUNDS, **lexicon.bounds_before}
    bound, rest = _opening(plain, bounds_before, lexicon)
    about, rest = (None, rest) if bound else _opening(rest, dict.fromkeys(lexicon.about_before, True), lexicon)
    if not bound and not about:
        bound, rest = _closing(rest, lexicon.bounds_after)
    if not bound and not about:
        about, rest = _closing(rest, dict.fromkeys(lexicon.about_after, True))
    quantity = _quantity(rest, text, lexicon)
    if quantity is not None:
        if bound:
            return _bound(text, quantity, bound)
        return _about(text, quantity) if about else _plain(text, quantity)
    return None if bound or about else _range(text, rest, lexicon)


def _opening(text: str, words: Mapping[str, _Meaning], lexicon: Lexicon) -> tuple[_Meaning | None, str]:
    """The meaning of the word the text opens with, and the rest; longer words first."""
    lowered = text.lower()
    for word in sorted(words, key=len, reverse=True):
        if lowered.startswith(word):
            rest = text[len(word) :]
            if word in SYMBOL_BOUNDS or not lexicon.spaced or rest.startswith(" "):
                return words[word], rest.lstrip()
    return None, text


def _closing(text: str, words: Mapping[str, _Meaning]) -> tuple[_Meaning | None, str]:
    """The meaning of the word the text closes with, and what comes before; longer words first."""
    lowered = text.lower()
    for word in sorted(words, key=len, reverse=True):
        if lowered.endswith(word):
            return words[word], text[: -len(word)].rstrip()
    return None, text


@dataclass(frozen=True)
class _Quantity:
    number: Number
    unit: str
    counted: bool


def _quantity(text: str, whole: str, lexicon: Lexicon) -> _Quantity | None:
    """A number and its unit, and nothing after them; None where the text is anything else."""
    if share := lexicon.share_words.get(text.lower() if lexicon.spaced else text):
        return _Quantity(Number(share[0], None), share[1], False)
    negative, rest = _sign(text, lexicon)
    for number, after in _numbers(rest, whole, lexicon):
        unit = _unit(after, lexicon)
        if unit is not None:
            value = -number.value if negative else number.value
            return _Quantity(replace(number, value=value), *unit)
    if negative:
        return None
    return _in_words(rest, lexicon)


def _sign(text: str, lexicon: Lexicon) -> tuple[bool, str]:
    if text.startswith(("-", "+")):
        return text[0] == "-", text[1:]
    word, rest = _opening(text, dict.fromkeys(lexicon.minus, True), lexicon)
    return bool(word), rest


def _numbers(text: str, whole: str, lexicon: Lexicon) -> Iterable[tuple[Number, str]]:
    """Every number in digits that the text can start with, the longest form first."""
    if fraction := _fraction(text, whole, lexicon):
        yield fraction
    for found in (
        digits.read_scaled(text, whole, lexicon.small_scales, lexicon.large_scales),
        digits.read_power(text, whole),
        digits.read_plain(text, whole),
    ):
        if found is not None:
            yield found


def _fraction(text: str, whole: str, lexicon: Lexicon) -> tuple[Number, str] | None:
    match = _FRACTION.match(text) or (lexicon.fraction.match(text) if lexicon.fraction else None)
    if match is None:
        return None
    over, under = (_whole(match[part], whole, lexicon) for part in ("over", "under"))
    if over is None or under is None:
        return None
    if under == 0:
        raise Unreadable(whole, "a fraction of zero parts", "write a denominator that is not 0")
    return Number(over / under, None), text[match.end() :]


def _whole(text: str, whole: str, lexicon: Lexicon) -> Fraction | None:
    if text in lexicon.fraction_words:
        return Fraction(lexicon.fraction_words[text])
    found = digits.read_scaled(text, whole, {}, lexicon.large_scales) or digits.read_plain(text, whole)
    return found[0].value if found is not None and found[1] == "" else None


def _in_words(text: str, lexicon: Lexicon) -> _Quantity | None:
    lowered = text.lower() if lexicon.spaced else text
    if lowered in lexicon.standing_words:
        return _Quantity(_small(lexicon.number_words[lowered]), "", False)
    for word in sorted(lexicon.number_words, key=len, reverse=True):
        if lowered.startswith(word):
            rest = text[len(word) :]
            unit = _unit(rest, lexicon)
            if rest and unit is not None and (not lexicon.spaced or rest[0] in " -"):
                return _Quantity(_small(lexicon.number_words[word]), *unit)
    return None


def _small(number: int) -> Number:
    return Number(Fraction(number), Fraction(1))


def _unit(text: str, lexicon: Lexicon) -> tuple[str, bool] | None:
    """The unit that the rest of a text is, and whether it is a counter word; None where it is neither."""
    word = text.strip()
    if text == "B":
        return None  # 8B is eight billion to some and eight bytes to others: the space tells them apart
    if word == "":
        return "", False
    if lexicon.spaced and word.startswith("-") and word not in lexicon.units:
        word = word[1:]  # a 4-bit model, 8-head attention
        if word not in lexicon.units and word not in lexicon.counters:
            return None
    for suffix in ("/s", *lexicon.per_second):
        base = word.removesuffix(suffix) if word != suffix else word
        symbol = SYMBOL_UNITS.get(base) or lexicon.units.get(base)
        if base != word and symbol and f"{symbol}/s" in UNITS:
            return f"{symbol}/s", False
    symbol = SYMBOL_UNITS.get(word) or lexicon.units.get(word)
    if symbol:
        return symbol, False
    return ("", True) if word in lexicon.counters else None


def _plain(text: str, quantity: _Quantity) -> Reading:
    """A number without a word about its precision: exact if it is whole, else half a unit of its last digit."""
    value, unit = quantity.number.value, quantity.unit
    if quantity.number.quantum is None or not (quantity.number.rounded or UNITS[unit].hundredths):
        return Reading(text, "exact", "=", value, value, value, unit=unit, counted=quantity.counted)
    low, high = _ends(quantity)
    return Reading(
        text, "rounded", "=", value, low, high, low_open=value <= 0, high_open=value >= 0,
        unit=unit, counted=quantity.counted,
    )  # fmt: skip


def _ends(quantity: _Quantity) -> tuple[Fraction, Fraction]:
    half = quantity.number.half_unit()
    return quantity.number.value - half, quantity.number.value + half


def _about(text: str, quantity: _Quantity) -> Reading:
    value, reach = quantity.number.value, quantity.number.about()
    if value == 0:
        raise Unreadable(text, "about zero says nothing", "write a bound, such as 1e-6未満, 1e-6 미만, less than 1e-6")
    return Reading(
        text, "about", "=", value, value - reach, value + reach, unit=quantity.unit, counted=quantity.counted
    )


def _bound(text: str, quantity: _Quantity, comparison: Comparison) -> Reading:
    value, upper, strict = quantity.number.value, comparison.startswith("<"), comparison in ("<", ">")
    return Reading(
        text, "bound", comparison, value, None if upper else value, value if upper else None,
        low_open=strict and not upper, high_open=strict and upper, unit=quantity.unit, counted=quantity.counted,
    )  # fmt: skip


def _range(text: str, plain: str, lexicon: Lexicon) -> Reading | None:
    for pattern in (_RANGE, *lexicon.between):
        if match := pattern.fullmatch(plain):
            low, high = (_quantity(match[end].strip(), text, lexicon) for end in ("low", "high"))
            if low is not None and high is not None:
                return _between(text, low, high)
    return None


def _between(text: str, low: _Quantity, high: _Quantity) -> Reading:
    if low.unit == "" and not low.counted:
        if high.number.scaled and not low.number.scaled:
            raise Unreadable(text, "one scale word for two ends", "write it at both ends, as in 200万〜300万")
        low = replace(low, unit=high.unit, counted=high.counted)
    if (low.unit, low.counted) != (high.unit, high.counted):
        raise Unreadable(text, "the ends of the range differ in unit", "write both ends in one unit")
    if low.number.value >= high.number.value:
        raise Unreadable(text, "the range does not rise", "write the smaller end first")
    bottom, top = _ends(low)[0], _ends(high)[1]
    return Reading(
        text, "range", "in", None, bottom, top,
        low_open=low.number.value <= 0 and bottom < low.number.value,
        high_open=high.number.value >= 0 and top > high.number.value,
        unit=high.unit, counted=high.counted, ends=(low.number.value, high.number.value),
    )  # fmt: skip
