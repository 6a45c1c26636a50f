"""Another value in the form of a number that is already written: `約900万` for 12 345 678 becomes `約1200万`.

What is kept: the words around the digits, the scale words, the unit, full-width digits, separators, decimals, the kind
of power. What the form cannot say raises `CannotReshape`. Whether a new text really says the value is not decided
here: candidates come in order of preference, and the caller lets the judge choose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from attnbook.claims.numerals import Reading, Unreadable, read
from attnbook.claims.numerals.digits import fold

_POWER = r"(?:\^[-+]?[0-9]+|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
_NUMBER = re.compile(
    r"(?<![0-9A-Za-z.])(?P<sign>-?)(?P<whole>[0-9]{1,3}(?:(?P<separator>[,    ])[0-9]{3}(?:(?P=separator)[0-9]{3})*"
    rf"(?![0-9]))|[0-9]+)(?:\.(?P<part>[0-9]+))?(?P<power>[eE][-+]?[0-9]+|\s?×\s?10{_POWER})?"
)
_BARE_POWER = re.compile(rf"(?<![0-9])(?P<base>[0-9]+)(?P<power>{_POWER})")
_FRACTION = re.compile(r"(?P<under>[0-9]+)\s?(?:分の|분의)\s?(?P<over>[0-9]+)|(?P<top>[0-9]+)/(?P<bottom>[0-9]+)")
_WIDE = str.maketrans("0123456789.,-", "０１２３４５６７８９．，－")
_RAISED = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_LOWERED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_MORE_DIGITS = 3


class CannotReshape(ValueError):
    """The form that is written cannot say the value; the text says why."""


def candidates(text: str, value: Fraction, spread: Fraction, language: str) -> Iterator[str]:
    """Texts in the form of `text` for another value, the one with the fewest digits first.

    `value` and its standard deviation `spread` (0 if it is not random) are in the unit that `text` is written in.
    A bound or range is drawn around value ± 2 spread. Raises CannotReshape.
    """
    try:
        reading = read(text, language)
    except Unreadable as error:
        raise CannotReshape(str(error)) from error
    if reading.special:
        raise CannotReshape(f"{text!r} is no number whose digits could change")
    folded = fold(text)
    if len(folded) != len(text):
        raise CannotReshape(f"{text!r} holds signs that this command does not rewrite")
    if fraction := _FRACTION.search(folded):
        yield _fraction(text, fraction, value)
        return
    found = [_Number.of(text, match) for match in _NUMBER.finditer(folded)]
    if not found:
        raise CannotReshape(f"{text!r} is written in words")
    bare = _BARE_POWER.search(folded)
    if bare and not any(number.power for number in found):
        yield _bare_power(text, bare, reading, value, spread)
    elif reading.kind == "range":
        yield _range(text, found, reading, value, spread)
    elif len(found) == 1:
        yield from _single(text, found[0], reading, value, spread, language)
    else:
        yield _compound(text, found, reading, value, language)


@dataclass(frozen=True)
class _Number:
    """Digits as written at `start`:`end`, with what it takes to write others in the same way."""

    start: int
    end: int
    written: str
    mantissa: Fraction
    decimals: int
    separator: str
    power: str
    """As written, folded: `e-6`, ` ×10⁻⁶`, or nothing."""

    @classmethod
    def of(cls, text: str, match: re.Match[str]) -> _Number:
        separator = match["separator"] or ""
        whole = match["whole"].replace(separator, "") if separator else match["whole"]
        part = match["part"] or ""
        written = text[match.start() : match.end()]
        mantissa = Fraction(int(match["sign"] + whole + part), 10 ** len(part))
        # The separator as it was written: a full-width comma stays one.
        own = text[match.start() + match[0].index(separator)] if separator else ""
        return cls(match.start(), match.end(), written, mantissa, len(part), own, match["power"] or "")

    @property
    def exponent(self) -> int:
        digits = re.sub(r"^[eE]|^\s?×\s?10\^?", "", self.power).translate(_LOWERED)
        return int(digits) if digits else 0

    @property
    def significant(self) -> int:
        """How many digits count; trailing zeros of a whole number do not."""
        digits = str(abs(self.mantissa.numerator * 10**self.decimals // self.mantissa.denominator))
        return max(1, len(digits if self.decimals else digits.rstrip("0")))

    @property
    def unit(self) -> Fraction:
        """The unit of the last digit that counts."""
        zeros = len(str(abs(int(self.mantissa)))) - len(str(abs(int(self.mantissa))).rstrip("0"))
        return Fraction(1, 10**self.decimals) if self.decimals else Fraction(10 ** (zeros if self.mantissa else 0))

    def write(self, mantissa: Fraction, decimals: int, exponent: int | None = None) -> str:
        """The digits of another number, written as these are."""
        scaled = _rounded(abs(mantissa) * 10**decimals)
        digits = str(scaled).zfill(decimals + 1)
        whole, part = (digits[:-decimals], digits[-decimals:]) if decimals else (digits, "")
        if self.separator:
            head = len(whole) % 3
            groups = [whole[:head]] * bool(head) + [whole[i : i + 3] for i in range(head, len(whole), 3)]
            whole = self.separator.join(groups)
        new = f"{whole}.{part}" if part else whole
        if self.power and exponent is not None:
            new += self._write_power(exponent)
        if re.search("[０-９]", self.written):
            new = new.translate(_WIDE)
        if mantissa < 0 and scaled:
            sign = self.written[0]
            new = (sign if self.mantissa < 0 else "−") + new
        return new

    def _write_power(self, exponent: int) -> str:
        head = re.match(r"[eE]|\s?×\s?10\^?", self.power)
        assert head is not None
        old = self.power[head.end() :].translate(_LOWERED)
        padded = len(old.lstrip("+-")) if old.lstrip("+-").startswith("0") else 0  # e-06 stays so
        sign = "-" if exponent < 0 else "+" if old.startswith("+") else ""
        new = sign + str(abs(exponent)).zfill(padded)
        return head[0] + (new if head[0][0] in "eE" or head[0].endswith("^") else new.translate(_RAISED))


def _single(
    text: str, number: _Number, reading: Reading, value: Fraction, spread: Fraction, language: str
) -> Iterator[str]:
    """One number: exact, rounded, about or a bound, plain or with a power of ten."""
    scale = _scale(text, number, language)
    x, deviation = value / scale, spread / scale
    exponent = None
    if number.power:
        exponent = number.exponent
        normal = 1 <= abs(number.mantissa) < 10
        if normal:
            if x == 0:
                raise CannotReshape("0 has no power of ten")
            exponent = _magnitude(x)
        x, deviation = x / Fraction(10) ** exponent, deviation / Fraction(10) ** exponent
    for mantissa, decimals in _mantissas(number, reading, x, deviation):
        if exponent is not None and normal and abs(mantissa) >= 10:
            yield _replace(text, number, number.write(mantissa / 10, decimals, exponent + 1))
        else:
            yield _replace(text, number, number.write(mantissa, decimals, exponent))


def _mantissas(number: _Number, reading: Reading, x: Fraction, deviation: Fraction) -> Iterator[tuple[Fraction, int]]:
    """New digits at the written precision, and the decimals they need; with "about", also a few more digits."""
    if reading.kind == "bound":
        up = reading.comparison in ("<", "<=")
        edge = x + 2 * deviation if up else x - 2 * deviation
        unit = _unit_of(edge, number.significant)
        bound = unit * (math.ceil(edge / unit) if up else math.floor(edge / unit))
        if bound == edge and reading.comparison in ("<", ">"):
            bound += unit if up else -unit
        if bound == 0 or bound * number.mantissa < 0:
            raise CannotReshape("a bound of this form would only give the sign")
        yield bound, _decimals(unit)
    elif reading.kind == "about" and not number.decimals:
        for more in range(_MORE_DIGITS + 1):
            unit = _unit_of(x, number.significant + more)
            yield unit * _rounded(x / unit), _decimals(unit)
    else:
        for more in range(_MORE_DIGITS + 1 if reading.kind == "about" else 1):
            unit = Fraction(1, 10 ** (number.decimals + more))
            if x and not _rounded(x / unit):  # 0.00 says nothing: as many significant digits instead
                unit = _unit_of(x, number.significant)
            yield unit * _rounded(x / unit), _decimals(unit)


def _range(text: str, found: list[_Number], reading: Reading, value: Fraction, spread: Fraction) -> str:
    """Both ends of a range, at the coarser precision of the two, around the value."""
    if len(found) != 2 or reading.ends is None or any(number.power for number in found):
        raise CannotReshape(f"the range {text!r} has a form that this command does not rewrite")
    scales = [end / n.mantissa for end, n in zip(reading.ends, found, strict=True) if n.mantissa]
    if len(set(scales)) != 1:
        raise CannotReshape(f"the ends of the range {text!r} are written at different scales")
    unit = max(number.unit for number in found)
    low = math.floor((value - 2 * spread) / scales[0] / unit) * unit
    high = max(math.ceil((value + 2 * spread) / scales[0] / unit) * unit, low + unit)
    if low <= 0 < found[0].mantissa:
        raise CannotReshape(f"a range in the form of {text!r} would begin at {low}")
    decimals = _decimals(unit)
    first, second = found
    between = text[first.end : second.start]
    ends = first.write(low, decimals) + between + second.write(high, decimals)
    return text[: first.start] + ends + text[second.end :]


def _compound(text: str, found: list[_Number], reading: Reading, value: Fraction, language: str) -> str:
    """A number of several scale words, `1億3500万`: each part as large as it can be, the last one rounded."""
    ends = [number.start for number in found[1:]] + [len(text)]
    scales = []
    for number, end in zip(found, ends, strict=True):
        try:
            part = read(text[number.start : end].strip(), language)
        except Unreadable as error:
            raise CannotReshape(f"{text!r} has a form that this command does not rewrite") from error
        if part.value is None or not number.mantissa or number.power or number.decimals:
            raise CannotReshape(f"{text!r} has a form that this command does not rewrite")
        scales.append(part.value / number.mantissa)
    if sum(n.mantissa * s for n, s in zip(found, scales, strict=True)) != reading.value or reading.kind == "bound":
        raise CannotReshape(f"{text!r} has a form that this command does not rewrite")
    left = _rounded(value / scales[-1]) * scales[-1]
    new, position = "", 0
    for number, scale in zip(found, scales, strict=True):
        count = math.floor(left / scale)
        if count <= 0:
            raise CannotReshape(f"the new number has no part of its own for every scale word of {text!r}")
        left -= count * scale
        new += text[position : number.start] + number.write(Fraction(count), 0)
        position = number.end
    return new + text[position:]


def _fraction(text: str, match: re.Match[str], value: Fraction) -> str:
    """`8分の1`, `1/8`: only a value that is such a fraction."""
    exact = value.limit_denominator(10_000)
    over = match["over"] or match["top"]
    under = "under" if match["under"] else "bottom"
    ratio = int(over) / exact if exact else Fraction(0)
    if not exact or abs(exact - value) > abs(value) / 10**9 or Fraction(ratio).denominator != 1:
        raise CannotReshape(f"the measurement is no fraction with {over} above the line, as {text!r} is")
    digits = str(Fraction(ratio).numerator)
    start, end = match.span(under)
    return text[:start] + (digits.translate(_WIDE) if re.search("[０-９]", text[start:end]) else digits) + text[end:]


def _bare_power(text: str, match: re.Match[str], reading: Reading, value: Fraction, spread: Fraction) -> str:
    """`10⁻⁶未満`: the next power of ten on the right side of the value."""
    if match["base"] != "10" or reading.kind != "bound" or value <= 0:
        raise CannotReshape(f"{text!r} is a bare power: only a bound at a power of ten has a next one")
    up = reading.comparison in ("<", "<=")
    edge = value + 2 * spread if up else value - 2 * spread
    if edge <= 0:
        raise CannotReshape("no power of ten lies below value - 2 standard deviations")
    power = _magnitude(edge)
    if up and (Fraction(10) ** power < edge or reading.comparison == "<"):
        power += 1
    elif not up and Fraction(10) ** power == edge and reading.comparison == ">":
        power -= 1
    head = "^" if match["power"].startswith("^") else ""
    start, end = match.span("power")
    return text[:start] + (f"^{power}" if head else str(power).translate(_RAISED)) + text[end:]


def _scale(text: str, number: _Number, language: str) -> Fraction:
    """What one unit of the digits stands for: the scale words, Ki or thousand, that follow them."""
    one = _replace(text, number, number.write(Fraction(1), 0, 0))
    try:
        value = read(one, language).value
    except Unreadable as error:
        raise CannotReshape(f"{text!r} has a form that this command does not rewrite") from error
    if not value:
        raise CannotReshape(f"{text!r} has a form that this command does not rewrite")
    return value


def _replace(text: str, number: _Number, digits: str) -> str:
    return text[: number.start] + digits + text[number.end :]


def _rounded(x: Fraction) -> int:
    """To the nearest integer, a half upwards: 0.945 is written 0.95, which accepts it."""
    return math.floor(x + Fraction(1, 2))


def _magnitude(x: Fraction) -> int:
    """The power of ten of the first digit."""
    power = math.floor(math.log10(abs(x.numerator)) - math.log10(x.denominator))
    while Fraction(10) ** (power + 1) <= abs(x):  # logarithms of large integers are rounded
        power += 1
    while Fraction(10) ** power > abs(x):
        power -= 1
    return power


def _unit_of(x: Fraction, significant: int) -> Fraction:
    """The unit of the last of so many significant digits."""
    return Fraction(10) ** (_magnitude(x) - significant + 1) if x else Fraction(1)


def _decimals(unit: Fraction) -> int:
    return len(str(unit.denominator)) - 1
