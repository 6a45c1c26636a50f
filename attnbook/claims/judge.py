"""Does a written text say what was measured? The verdict on one claim, and on a translated number. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from attnbook.claims import propose, unowned
from attnbook.claims.accept import Interval, UnitError, accepts, exact, in_digits, plain
from attnbook.claims.numerals import UNITS, Reading, Unreadable, read
from attnbook.measure import Measurement, Value, format_value

__all__ = ["Interval", "Status", "UnitError", "Verdict", "accepts", "difference", "judge", "same_number"]

Status = Literal[
    "fine", "drift", "fragile", "stale", "unreadable", "not finite", "unit", "not boolean", "not a number", "false",
    "placeholder",
]  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What judging one claim came to. The message names the claim and says what would be accepted; "" when fine."""

    status: Status
    accepts: Interval | None = None
    message: str = ""

    @property
    def accepts_text(self) -> str:
        """The accepted interval as people read it; "" where the text accepts no numbers."""
        return self.accepts.text if self.accepts else ""


def judge(text: str, measurement: Measurement, role: str, language: str) -> Verdict:
    """Judge a text that stands in a role ("claim" or "holds") on a page of a language, against its measurement."""
    named = f"{role} {measurement.id}"
    if text.strip() == "?" and (role == "claim" or isinstance(measurement.value, bool)):
        return Verdict("placeholder", message=f"{named} is a placeholder: write {_offer(measurement, role, language)}")
    verdict = (_judge_statement if role == "holds" else _judge_number)(text, measurement, language, named)
    if measurement.stale:
        changed = ", ".join(measurement.stale)
        message = f"{named} says {text}, from a stale record: {changed} changed after {measurement.source} was made"
        return Verdict("stale", verdict.accepts, f"{message}; measure again, or take the sentence out")
    return verdict


def _judge_statement(text: str, measurement: Measurement, language: str, named: str) -> Verdict:
    value = measurement.value
    if not text.strip():
        return Verdict("unreadable", message=f"{named} has no text: write the statement that it holds")
    if numbers := unowned.find(text, language):
        number = numbers[0].text
        return Verdict("unreadable", message=f"{named} holds the number {number}: a number is a claim of its own")
    if not isinstance(value, bool):
        shown = _shown(value)
        return Verdict("not boolean", message=f"{named} needs a boolean, measured {shown}: write a claim instead")
    if not value:
        return Verdict("false", message=f"{named} says {text}, measured False (accepts True)")
    return Verdict("fine")


def _judge_number(text: str, measurement: Measurement, language: str, named: str) -> Verdict:
    value = measurement.value
    if isinstance(value, bool):
        return Verdict("not a number", message=f"{named} says {text}, measured {value}: a boolean needs the role holds")
    try:
        reading = read(text, language)
    except Unreadable as error:
        return Verdict("unreadable", message=f"{named} says {text}, which cannot be read: {error.reason}; {error.hint}")
    try:
        interval = accepts(reading, measurement)
    except UnitError as error:
        shown = f"{_shown(value)} {measurement.unit}".rstrip()
        return Verdict("unit", message=f"{named} says {text}, measured {shown}: {error}")
    return _compare(text, measurement, interval, reading, named, language)


def _compare(
    text: str, measurement: Measurement, interval: Interval, reading: Reading, named: str, language: str
) -> Verdict:
    value, spread = measurement.value, measurement.spread
    # Told in percent where that is what the author wrote, else in the measurement's unit.
    percent = reading.unit == "%" and measurement.unit == "ratio" and not isinstance(value, Fraction)
    by, unit = (100, "%") if percent and _is_finite(value) else (1, f" {measurement.unit}".removesuffix(" ratio"))
    told = interval.scaled(by, "%") if by != 1 else interval
    says = f"{named} says {text}, measured {_shown(value, told, interval.contains(value), by)}{unit.rstrip()}"
    limits = f"(accepts {told.text})"
    if not _is_finite(value) and not reading.special:
        return Verdict("not finite", interval, f"{says} {limits}")
    if not interval.contains(value):
        return Verdict("drift", interval, f"{says} {limits}{_advice(value, interval, reading)}")
    if spread is not None and spread != 0 and not reading.special:
        if not math.isfinite(spread) or spread < 0:
            return Verdict("not finite", interval, f"{says}, but its standard deviation is {spread}")
        if not interval.contains_spread(value, spread):
            ends = (plain((exact(value) + side * 2 * exact(spread)) * by) for side in (-1, 1))
            reach = f"±2 standard deviations reach {' to '.join(ends)}{'%' if by != 1 else ''}"
            offer = _offer(measurement, "claim", language)
            return Verdict("fragile", interval, f"{says} {limits}, fragile: {reach}: write {offer}")
    return Verdict("fine", interval)


def _advice(value: Value, interval: Interval, reading: Reading) -> str:
    """What to write instead of a whole number or fraction that a real rounds to; "" where the number is just wrong."""
    if reading.kind != "exact" or not isinstance(value, float) or reading.value is None or interval.low is None:
        return ""
    step = UNITS[reading.unit].factor / UNITS[interval.unit].factor / reading.value.denominator
    if abs(exact(value) - interval.low) >= step / 2:
        return ""
    what = "whole number" if reading.value.denominator == 1 else "fraction"
    return f"; a {what} is exact: for a real write decimals, a bound or about"


def _is_finite(value: Value) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _shown(value: Value, interval: Interval | None = None, inside: bool = True, by: int = 1) -> str:
    """`by` times the value, with as many digits as it takes to see that it is inside or outside the interval."""
    if isinstance(value, bool | Fraction) or not _is_finite(value):
        return format_value(value)
    try:
        real = float(exact(value) * by)
    except OverflowError:
        return str(value)
    texts = (in_digits(real, digits) for digits in range(6, 17))
    told = (text for text in texts if interval is None or interval.contains(float(text)) == inside)
    return next(told, repr(real) if isinstance(value, float) else str(value * by))


def _offer(measurement: Measurement, role: str, language: str) -> str:
    literals = propose.literals(measurement, language)
    if literals:
        return " or ".join(literals)
    if isinstance(measurement.value, bool) and role == "holds":
        return (
            f"the statement in place of ?; measured {measurement.value}{'' if measurement.value else ' (accepts True)'}"
        )
    if isinstance(measurement.value, bool):
        return "it with the role holds: the measurement is a boolean"
    return "nothing yet: the measurement is too random for any number; repeat it more often"


def same_number(source_text: str, source_language: str, target_text: str, target_language: str) -> bool:
    """Does a translated number say the same as the source's: amount, comparison, "about" and precision?"""
    return not difference(source_text, source_language, target_text, target_language)


def difference(source_text: str, source_language: str, target_text: str, target_language: str) -> str:
    """What a translated number says otherwise than the source's ("another comparison"); "" where nothing.

    Of a text that cannot be read it says that, and why.
    """
    try:
        source, target = read(source_text, source_language), read(target_text, target_language)
    except Unreadable as error:
        return str(error)
    if source.denotes(target):
        return ""
    if source.comparison != target.comparison:
        return "another comparison"
    if (source.kind == "about") != (target.kind == "about"):
        return (
            "about where the source does not say it" if target.kind == "about" else "no about where the source has one"
        )
    if source.amounts() == target.amounts() and source.special == target.special:
        return "another precision or unit"
    return "another number"
