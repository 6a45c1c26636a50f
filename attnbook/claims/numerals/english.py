"""The words around English numbers."""

from __future__ import annotations

import re
from fractions import Fraction

from attnbook.claims.numerals.lexicon import Lexicon, words

_UP_TO_NINETEEN = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_PARTS = {
    "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10,
    "sixteenth": 16, "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
_COUNTED = words(
    """
    line row column character layer head parameter element component dimension key value tile block chunk position
    word expert model seed sequence sample step place way pair digit vector tensor instruction operation request page
    item epoch example term register group round level stage kind sentence bucket task chapter section process thread
    """
)
_UNEVEN = words("query queries entry entries batch batches index indices matrix matrices pass passes people processes")


def _number_words() -> dict[str, int]:
    names = {name: value for value, name in enumerate(_UP_TO_NINETEEN, start=1)}
    for tens, name in enumerate(_TENS, start=2):
        names[name] = 10 * tens
        names |= {f"{name}-{one}": 10 * tens + value for value, one in enumerate(_UP_TO_NINETEEN[:9], start=1)}
    return names


def _share_words() -> dict[str, tuple[Fraction, str]]:
    shares = {
        "half": (Fraction(1, 2), "×"), "a half": (Fraction(1, 2), "×"), "one half": (Fraction(1, 2), "×"),
        "zero": (Fraction(0), ""), "once": (Fraction(1), "times"), "twice": (Fraction(2), "times"),
    }  # fmt: skip
    for part, under in _PARTS.items():
        shares |= {f"a {part}": (Fraction(1, under), ""), f"an {part}": (Fraction(1, under), "")}
        for over, name in enumerate(_UP_TO_NINETEEN[:9], start=1):
            plural = "s" if over > 1 else ""
            shares |= {f"{name}{joint}{part}{plural}": (Fraction(over, under), "") for joint in (" ", "-")}
    for name, value in list(_number_words().items())[1:20]:
        shares[f"{name}fold"] = (Fraction(value), "×")
    return shares


ENGLISH = Lexicon(
    language="en",
    spaced=True,
    about_before=("about", "around", "roughly", "approximately", "nearly", "almost"),
    about_after=("or so",),
    bounds_before={
        "less than": "<", "fewer than": "<", "smaller than": "<", "below": "<", "under": "<",
        "at most": "<=", "no more than": "<=", "not more than": "<=", "up to": "<=",
        "at least": ">=", "no less than": ">=", "not less than": ">=", "no fewer than": ">=",
        "more than": ">", "greater than": ">", "larger than": ">", "over": ">", "above": ">",
    },
    bounds_after={"or less": "<=", "or fewer": "<=", "or more": ">="},
    minus=("minus", "negative"),
    small_scales={"hundred": 100},
    large_scales={"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    units={
        "percent": "%", "per cent": "%", "percentage point": "point", "percentage points": "point", "pp": "point",
        "times": "times", "-fold": "×", "fold": "×", "bit": "bit", "byte": "B", "bytes": "B", "kilobytes": "kB",
        "megabytes": "MB", "gigabytes": "GB", "terabytes": "TB", "second": "s", "seconds": "s", "millisecond": "ms",
        "milliseconds": "ms", "microseconds": "µs", "nanoseconds": "ns", "minute": "min", "minutes": "min",
        "min": "min", "hour": "h", "hours": "h", "h": "h", "token": "token", "tokens": "token",
    },
    per_second=(" per second",),
    counters=frozenset([*_COUNTED, *(f"{word}s" for word in _COUNTED), *_UNEVEN]),
    number_words=_number_words(),
    standing_words=frozenset(_number_words()),
    share_words=_share_words(),
    fraction=None,
    fraction_words={},
    between=(
        re.compile(r"between (?P<low>.+?) and (?P<high>.+)", re.IGNORECASE),
        re.compile(r"(?:from )?(?P<low>.+?) to (?P<high>.+)", re.IGNORECASE),
    ),
)  # fmt: skip
