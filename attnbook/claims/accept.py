"""The values of a measurement that a reading accepts, as an interval in the measurement's unit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction

from attnbook.claims.numerals import UNITS, Reading
from attnbook.claims.numerals.units import Unit, compatible
from attnbook.measure import Measurement, Value

_EXPONENT = re.compile(r"\.?0*e\+?(-?)0*")
_LARGE = 10**15
_EXACTLY = Fraction(1, 10**9)  # how far, relatively, a real may lie from the whole number or fraction it equals


class UnitError(ValueError):
    """A text and a measurement whose units do not fit."""


@dataclass(frozen=True)
class Interval:
    """Accepted values in a measurement's unit. None is no end; an open end is not itself accepted."""

    low: Fraction | None
    high: Fraction | None
    low_open: bool = False
    high_open: bool = False
    unit: str = ""
    special: str = ""
    """nan, inf or -inf: the only value accepted, in place of an interval."""

    @property
    def text(self) -> str:
        """As people read it: `0.945 to 0.955`, `exactly 3`, `less than 1e-6`, `at least 8 token`."""
        unit = "" if self.unit in ("", "ratio") else "%" if self.unit == "%" else f" {self.unit}"
        if self.special:
            return f"only {self.special}"
        if self.low is not None and self.low == self.high:
            return f"exactly {plain(self.low)}{unit}"
        if self.low is None and self.high is not None:
            return f"{'less than' if self.high_open else 'at most'} {plain(self.high)}{unit}"
        if self.high is None and self.low is not None:
            return f"{'more than' if self.low_open else 'at least'} {plain(self.low)}{unit}"
        assert self.low is not None
        assert self.high is not None
        return f"{plain(self.low)} to {plain(self.high)}{unit}"

    def scaled(self, by: int, unit: str) -> Interval:
        """The same interval in a unit of which it takes `by` times as many."""
        low, high = (None if end is None else end * by for end in (self.low, self.high))
        return replace(self, low=low, high=high, unit=unit)

    def contains(self, value: Value) -> bool:
        """Is the value accepted? A real equals a whole number or fraction to 1e-9 relative, and 0 only exactly."""
        if isinstance(value, float) and not math.isfinite(value):
            return self.special == str(value)
        number = exact(value)
        if self.special:
            return False
        if self.low is not None and self.low == self.high:
            return abs(number - self.low) <= (_EXACTLY * abs(self.low) if isinstance(value, float) else 0)
        above = self.low is None or (number > self.low if self.low_open else number >= self.low)
        below = self.high is None or (number < self.high if self.high_open else number <= self.high)
        return above and below

    def contains_spread(self, value: Value, spread: float) -> bool:
        """Are the value and the value ± 2 standard deviations all accepted?"""
        if not math.isfinite(spread) or (isinstance(value, float) and not math.isfinite(value)):
            return False
        middle, reach = exact(value), 2 * exact(spread)
        return self.contains(value) and self.contains(middle - reach) and self.contains(middle + reach)


def exact(value: Value) -> Fraction:
    """A finite value as a fraction; a real counts as the shortest decimal that names it, which is what people see."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def accepts(reading: Reading, measurement: Measurement) -> Interval:
    """The interval of the measurement's values that the reading accepts, in the measurement's unit.

    Raises UnitError where the text has a unit that the measurement has not, or the other way round.
    """
    written, measured = UNITS[reading.unit], UNITS.get(measurement.unit)
    if measured is None:
        raise UnitError(
            f"it is measured in the unknown unit {measurement.unit!r}; known are "
            f"{', '.join(symbol for symbol in UNITS if symbol)}, or none for a count"
        )
    if reading.special:
        return Interval(None, None, unit=measurement.unit, special=reading.special)
    if not compatible(written, measured) or (reading.counted and measured.symbol != ""):
        raise UnitError(_misfit(reading, written, measured))
    by = written.factor / measured.factor
    low = None if reading.low is None else reading.low * by
    high = None if reading.high is None else reading.high * by
    return Interval(low, high, reading.low_open, reading.high_open, measurement.unit)


def _misfit(reading: Reading, written: Unit, measured: Unit) -> str:
    needs = {
        "number": "is measured as a bare number",
        "ratio": "is measured as a ratio (write 98%, 3倍, 3배, 3× or 0.98)",
        "point": "is measured in percentage points (write 2ポイント, 2%p, 2 percentage points)",
    }.get(measured.dimension, f"is measured in {measured.symbol}")
    if reading.counted:
        return f"it {needs}, and the text counts things"
    if written.dimension == "number":
        return f"it {needs}, and the text has no unit"
    advice = '; measure it with unit="ratio"' if (written.dimension, measured.symbol) == ("ratio", "") else ""
    return f"it {needs}, and the text has the unit {written.symbol}{advice}"


def plain(number: Fraction) -> str:
    """A number as people read it: exact where that is short, else six significant digits."""
    if number.denominator == 1 and abs(number) < _LARGE:
        return str(number.numerator)
    try:
        real = float(number)
    except OverflowError:
        return f"{'-' if number < 0 else ''}10^{len(str(abs(number.numerator))) - len(str(number.denominator))}"
    texts = [in_digits(real, digits) for digits in range(6, 13)]
    return next((text for text in texts if Fraction(text) == number), texts[0])


def in_digits(real: float, digits: int) -> str:
    """A finite real at so many significant digits; from 1e15 on and below 1e-4 with an exponent, else without.

    Digits before the point are never cut: 8886110.52 is 8886111 at six.
    """
    power = int(f"{real:.{digits - 1}e}".partition("e")[2])
    if real != 0 and not 1e-4 <= abs(real) < _LARGE:
        return _EXPONENT.sub(r"e\1", f"{real:.{digits - 1}e}")
    text = f"{real:.{max(digits - 1 - power, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
