"""What a written number means: the amount it denotes and the values it accepts, or why it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from attnbook.claims.numerals.units import UNITS, comparable

Comparison = Literal["=", "<", "<=", ">", ">=", "in"]
Kind = Literal["exact", "rounded", "about", "bound", "range", "special"]


class Unreadable(ValueError):
    """A text that is not a number this book understands: why, and what to write instead."""

    def __init__(self, text: str, reason: str, hint: str) -> None:
        super().__init__(f"cannot read {text!r}: {reason}; {hint}")
        self.text = text
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class Reading:
    """How a text is understood. Every amount is exact, and in the unit that the text is written in.

    `low` and `high` are the ends of the accepted interval, None where it has no end; an open end is not itself
    accepted. Equal ends accept that amount alone.
    """

    text: str
    kind: Kind
    comparison: Comparison
    value: Fraction | None
    """The amount the text denotes; None for a range (it denotes `ends`) and for nan and inf."""
    low: Fraction | None
    high: Fraction | None
    low_open: bool = False
    high_open: bool = False
    unit: str = ""
    """A symbol of `units.UNITS`: "" for a bare number."""
    special: Literal["", "nan", "inf", "-inf"] = ""
    counted: bool = False
    """Does a counter word (個, 개, lines) follow? Then it is a count, never a ratio."""
    ends: tuple[Fraction, Fraction] | None = None
    """The two numbers of a range, as written."""

    def denotes(self, other: Reading) -> bool:
        """Do two texts, in two languages or units, say the same: same amount, same comparison, same precision?

        `98%` and `0.98` do (both are right to half a hundredth). `0.12` and `0.120` do not: the second promises
        more. A number with "about" never equals one without.
        """
        return self._meaning() == other._meaning() and comparable(UNITS[self.unit], UNITS[other.unit])

    def amounts(self) -> tuple[Fraction, ...]:
        """The amounts the text denotes, in base units: one, two for a range, none for nan and inf."""
        written = self.ends or (() if self.value is None else (self.value,))
        return tuple(amount * UNITS[self.unit].factor for amount in written)

    def _meaning(self) -> tuple[object, ...]:
        factor = UNITS[self.unit].factor
        amounts = (self.value, self.low, self.high, *(self.ends or ()))
        scaled = tuple(None if amount is None else amount * factor for amount in amounts)
        return self.comparison, self.kind == "about", self.special, scaled, self.low_open, self.high_open
