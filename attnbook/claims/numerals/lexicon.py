"""What one language's lexicon of numbers holds. Every list is closed: a word in none makes a text unreadable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from attnbook.claims.numerals.reading import Comparison
from attnbook.claims.numerals.units import UNITS

SYMBOL_BOUNDS: Mapping[str, Comparison] = {
    "<=": "<=", "≤": "<=", "<": "<", ">=": ">=", "≥": ">=", ">": ">",
}  # fmt: skip

SYMBOL_UNITS: Mapping[str, str] = (
    {symbol: symbol for symbol in UNITS if symbol not in ("", "ratio", "割", "times", "point", "token", "min", "h")}
    | {"%p": "point", "us": "µs", "FLOPs": "FLOP", "FLOPS": "FLOP/s", "bits": "bit"}
    | {f"{prefix}FLOPs": f"{prefix}FLOP" for prefix in "kMGTP"}
    | {f"{prefix}FLOPS": f"{prefix}FLOP/s" for prefix in "kMGTP"}
)
"""Units that every language writes alike. Case matters: FLOPs are counted, FLOPS are per second."""


@dataclass(frozen=True)
class Lexicon:
    """The words around and instead of digits in one language. `spaced` says that words need a space between them."""

    language: str
    spaced: bool
    about_before: tuple[str, ...]
    about_after: tuple[str, ...]
    bounds_before: Mapping[str, Comparison]
    bounds_after: Mapping[str, Comparison]
    minus: tuple[str, ...]
    small_scales: Mapping[str, int]
    large_scales: Mapping[str, int]
    units: Mapping[str, str]
    per_second: tuple[str, ...]
    counters: frozenset[str]
    number_words: Mapping[str, int]
    """Small numbers in words that may stand before a counter or unit (三つ, 세 줄, three lines)."""
    standing_words: frozenset[str]
    """Those that may also stand alone."""
    share_words: Mapping[str, tuple[Fraction, str]]
    """Whole words for an amount, with their unit: 半分, half, twice."""
    fraction: re.Pattern[str] | None
    """A fraction in words, with groups `over` and `under`: 8分の1."""
    fraction_words: Mapping[str, int]
    """Number words that may stand in such a fraction."""
    between: tuple[re.Pattern[str], ...]
    """Ranges in words, with groups `low` and `high`."""


def words(text: str) -> frozenset[str]:
    """The words of a list written as running text."""
    return frozenset(text.split())


def numbers_below_hundred(ones: str, ten: str) -> dict[str, int]:
    """Names of 1 to 99 in a system of ones and tens (Chinese characters, Sino-Korean)."""
    names = {}
    for number in range(1, 100):
        tens, one = divmod(number, 10)
        name = (ones[tens - 1] if tens > 1 else "") + (ten if tens else "") + (ones[one - 1] if one else "")
        names[name] = number
    return names
