"""Literals to choose from for a measurement: what an author may write, in the language of the page.

Each is read back and held against the measurement before it is offered, so what is offered is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from attnbook.claims.accept import UnitError, accepts, exact
from attnbook.claims.numerals import UNITS, Unreadable, read
from attnbook.measure import Measurement


@dataclass(frozen=True)
class _Idiom:
    """How a language writes what is around the digits."""

    about: str
    below: str
    at_least: str
    range: str
    share: str
    spaced: bool
    """Does a space part a scale word from the unit after it?"""
    scales: tuple[tuple[int, str], ...]
    units: dict[str, str]


_IDIOMS = {
    "ja": _Idiom(
        "約{}", "{}未満", "{}以上", "{}〜{}", "{under}分の{over}", False,
        ((10**12, "兆"), (10**8, "億"), (10**4, "万")),
        {
            "×": "倍", "point": "ポイント", "B": "バイト", "bit": "ビット", "token": "トークン", "s": "秒", "min": "分",
            "h": "時間",
        },
    ),
    "ko": _Idiom(
        "약 {}", "{} 미만", "{} 이상", "{}~{}", "{under}분의 {over}", True,
        ((10**12, "조"), (10**8, "억"), (10**4, "만")),
        {"×": "배", "point": "%p", "B": "바이트", "bit": "비트", "token": "토큰", "s": "초", "min": "분", "h": "시간"},
    ),
    "en": _Idiom(
        "about {}", "less than {}", "at least {}", "{}–{}", "{over}/{under}", True,
        ((10**12, " trillion"), (10**9, " billion"), (10**6, " million")),
        {
            "×": " times", "point": " percentage points", "B": " bytes", "bit": " bits", "token": " tokens", "s": " s",
            "min": " minutes",
        },
    ),
}  # fmt: skip


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def literals(measurement: Measurement, language: str) -> list[str]:
    """Texts that `judge` finds fine for the measurement: two, three, four digits, "about", exact, a range or a bound.

    Empty for a boolean (its statement stands in the role holds), for a unit no text has, and for a number so random
    that no text is steady.
    """
    value = measurement.value
    if isinstance(value, bool) or measurement.unit not in UNITS:
        return []
    if isinstance(value, float) and not math.isfinite(value):
        return [str(value).replace("-", "−")]
    idiom = _IDIOMS[language]
    texts = [*_candidates(exact(value), measurement.unit, idiom)]
    texts = [text for text in texts if _fits(text, measurement, language)]
    random = len(texts) < 3 and measurement.spread and math.isfinite(measurement.spread)
    if random:  # few numbers fit: a range or a bound does
        texts += _ranges(measurement, idiom, language)
    bounds = [*_tiny(exact(value), measurement.unit, idiom), *(_bounds(measurement, idiom) if random else ())]
    texts += [text for text in bounds if _fits(text, measurement, language)]
    return list(dict.fromkeys(texts))


def _fits(text: str, measurement: Measurement, language: str) -> bool:
    try:
        interval = accepts(read(text, language), measurement)
    except (Unreadable, UnitError):
        return False
    return interval.contains_spread(measurement.value, measurement.spread or 0.0)


def _candidates(value: Fraction, symbol: str, idiom: _Idiom) -> Iterator[str]:
    for factor, suffix in _unit_forms(abs(value), symbol, idiom):
        amount = value / factor
        whole = amount.denominator == 1
        if whole:
            yield f"{_sign(amount)}{abs(amount.numerator):,}{suffix}"
        for digits in (2, 3, 4):
            if not whole or abs(amount) >= 10**digits:  # 4.00 for a whole 4 would only promise less
                yield from _written(amount, digits, suffix, idiom, "{}")
        for digits in (1, 2, 3):
            if not whole or abs(amount) >= 10 ** (digits - 1):
                yield from _written(amount, digits, suffix, idiom, idiom.about)
    if symbol in ("", "ratio") and 1 < value.denominator <= 16 and abs(value.numerator) < 16:
        yield _sign(value) + idiom.share.format(over=abs(value.numerator), under=value.denominator)


def _tiny(value: Fraction, symbol: str, idiom: _Idiom) -> Iterator[str]:
    """The power of ten that a tiny number is below, as errors are quoted."""
    if 0 < abs(value) < Fraction(1, 1000):
        suffix = _unit_forms(Fraction(1), symbol, idiom)[0][1] if symbol != "ratio" else ""
        yield idiom.below.format(f"1e{_magnitude(abs(value)) + 1}{suffix}")


def _unit_forms(size: Fraction, symbol: str, idiom: _Idiom) -> list[tuple[Fraction, str]]:
    """Ways to write the measurement's unit: how much of it one is, and the text that follows the digits."""
    unit = UNITS[symbol]
    if symbol == "ratio":
        bare = (Fraction(1), "")
        if size >= Fraction(3, 2):
            return [(Fraction(1), idiom.units["×"]), bare]
        return [(Fraction(1, 100), "%"), bare] if size >= Fraction(1, 10**4) else [bare]
    own = (Fraction(1), idiom.units.get(symbol, f" {symbol}" if symbol else ""))
    larger = [
        other
        for other in UNITS.values()
        if other.dimension == unit.dimension and other.factor > unit.factor and other.factor / unit.factor <= size
        and (unit.dimension != "byte" or "i" in other.symbol) and unit.dimension not in ("ratio", "time")
    ]  # fmt: skip
    if not larger:
        return [own]
    best = max(larger, key=lambda other: other.factor)
    return [(best.factor / unit.factor, f" {best.symbol}"), own]


def _written(amount: Fraction, digits: int, suffix: str, idiom: _Idiom, frame: str) -> Iterator[str]:
    """The amount at so many significant digits, in plain digits, with a scale word, or with an exponent."""
    if amount == 0:
        return
    size, sign = abs(amount), _sign(amount)
    power = _magnitude(size)
    if size < Fraction(1, 1000):
        yield frame.format(f"{sign}{_decimal(size / Fraction(10) ** power, digits)}e{power}{suffix}")
        return
    scale, word = next(((scale, word) for scale, word in idiom.scales if size >= scale), (1, ""))
    if size < 10**4:
        scale, word = 1, ""
    if frame == "{}" and size / scale >= 10**digits:  # the digits end before the ones: only a power can say so
        mantissa = _decimal(size / Fraction(10) ** power, digits)
        yield f"{sign}{mantissa}×10{str(power).translate(_SUPERSCRIPTS)}{suffix}"
        return
    space = " " if word and idiom.spaced and suffix[:1].isalpha() else ""
    yield frame.format(f"{sign}{_decimal(size / scale, digits)}{word}{space}{suffix}")


def _decimal(size: Fraction, digits: int) -> str:
    """A positive amount rounded (half up) to so many significant digits, without an exponent."""
    unit = Fraction(10) ** (_magnitude(size) - digits + 1)
    rounded = (size / unit + Fraction(1, 2)).__floor__() * unit
    return _fixed(rounded, max(digits - 1 - _magnitude(rounded), 0))


def _magnitude(size: Fraction) -> int:
    """The power of ten of the first digit of a positive amount."""
    power = len(str(size.numerator)) - len(str(size.denominator))
    return power if size >= Fraction(10) ** power else power - 1


def _sign(amount: Fraction) -> str:
    return "−" if amount < 0 else ""


def _ranges(measurement: Measurement, idiom: _Idiom, language: str) -> Iterator[str]:
    """Ranges that hold two standard deviations, the narrowest first. None reaches below nothing, where a bound does."""
    value, reach = exact(measurement.value), 2 * exact(measurement.spread or 0.0)
    factor, suffix = _unit_forms(abs(value), measurement.unit, idiom)[0]
    low, high = (value - reach) / factor, (value + reach) / factor
    coarse = Fraction(10) ** _magnitude(reach / factor)
    for step in (coarse / 10, coarse):
        # Rounded ends accept half a step more; where they do not (1,200 is exact), ends further out are needed.
        rounded = (low / step - Fraction(1, 2)).__ceil__(), (high / step + Fraction(1, 2)).__floor__()
        outward = (low / step).__floor__(), (high / step).__ceil__()
        for first, last in (rounded, outward):
            if step < coarse and first % 10 == last % 10 == 0:
                continue  # the coarser step writes the same with a digit less
            if first < last and not _vacuous(Fraction(first), value):
                text = _range(first * step, last * step, step, suffix, idiom)
                if _fits(text, measurement, language):
                    yield text
                    break


def _vacuous(low: Fraction, value: Fraction) -> bool:
    """Does a lower end say nothing? Most of what is positive (a loss, a share, a time) cannot be anything else."""
    return value > 0 and low <= 0


def _range(low: Fraction, high: Fraction, step: Fraction, suffix: str, idiom: _Idiom) -> str:
    """A range whose ends are written alike, to the digit that a step is one of."""
    size = max(abs(low), abs(high))
    scale, word = next(((Fraction(scale), word) for scale, word in idiom.scales if size >= scale), (Fraction(1), ""))
    if size < Fraction(1, 1000):
        power = _magnitude(size)
        scale, word = Fraction(10) ** power, f"e{power}"
    places = max(-_magnitude(step / scale), 0)
    first, last = (f"{_sign(end)}{_fixed(abs(end) / scale, places)}{word}" for end in (low, high))
    space = " " if word.isalpha() and idiom.spaced and suffix[:1].isalpha() else ""
    return f"{idiom.range.format(first, last)}{space}{suffix}"


def _fixed(size: Fraction, places: int) -> str:
    """A decimal fraction with so many digits after the point."""
    whole, part = divmod(round(size * 10**places), 10**places)
    return f"{whole:,}.{part:0{places}d}" if places else f"{whole:,}"


def _bounds(measurement: Measurement, idiom: _Idiom) -> Iterator[str]:
    """Bounds that leave room for two standard deviations, for a measurement that no number fits."""
    value, reach = exact(measurement.value), 2 * exact(measurement.spread or 0.0)
    _, suffix = _unit_forms(Fraction(0), measurement.unit, idiom)[-1]
    for digits in (2, 1):
        unit = Fraction(10) ** (_magnitude(abs(value) + reach) - digits + 1)
        for end, frame in (
            (((value - reach) / unit).__floor__() * unit, idiom.at_least),
            ((((value + reach) / unit).__floor__() + 1) * unit, idiom.below),
        ):
            if frame == idiom.at_least and _vacuous(end, value):
                continue
            if end != 0:
                yield frame.format(f"{_sign(end)}{_plain(abs(end))}{suffix}")
            else:
                yield frame.format(f"0{suffix}")


def _plain(size: Fraction) -> str:
    """A positive decimal fraction in full where it is short, with an exponent where it is not."""
    power = _magnitude(size)
    if -4 <= power <= 15:
        places = next(place for place in range(20) if (size * 10**place).denominator == 1)
        return f"{float(size):,.{places}f}" if places else f"{int(size):,}"
    mantissa = size / Fraction(10) ** power
    return f"{mantissa.numerator}e{power}" if mantissa.denominator == 1 else f"{float(mantissa):g}e{power}"
