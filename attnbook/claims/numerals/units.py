"""The units that a number in prose or a measurement may carry, and how they convert. A closed table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Unit:
    """A unit: what it counts (its dimension), and how many of the dimension's base unit it is."""

    symbol: str
    dimension: str
    factor: Fraction

    @property
    def hundredths(self) -> bool:
        """Is it a part of one (%, 割) or of a difference (point)? Then even a whole number of it is a rounding.

        A whole number of any other unit is exact, as a bare one is: 4倍 is not 4.2, and 2 GB is not 2 GiB.
        """
        return self.dimension == "point" or (self.dimension == "ratio" and self.factor != 1)


def _table() -> Mapping[str, Unit]:
    units = [
        Unit("", "number", Fraction(1)),
        Unit("ratio", "ratio", Fraction(1)),
        Unit("×", "ratio", Fraction(1)),
        Unit("times", "times", Fraction(1)),  # English only: "3 times" is 3倍 or 3回, and both readings denote 3
        Unit("%", "ratio", Fraction(1, 100)),
        Unit("割", "ratio", Fraction(1, 10)),
        Unit("point", "point", Fraction(1)),
        Unit("bit", "bit", Fraction(1)),
        Unit("token", "token", Fraction(1)),
        Unit("B", "byte", Fraction(1)),
        Unit("FLOP", "operation", Fraction(1)),
        Unit("s", "time", Fraction(1)),
        Unit("ms", "time", Fraction(1, 10**3)),
        Unit("µs", "time", Fraction(1, 10**6)),
        Unit("ns", "time", Fraction(1, 10**9)),
        Unit("min", "time", Fraction(60)),
        Unit("h", "time", Fraction(3600)),
    ]
    for power, prefix in enumerate(("k", "M", "G", "T", "P"), start=1):
        units.append(Unit(f"{prefix}B", "byte", Fraction(1000**power)))
        units.append(Unit(f"{prefix.upper()}iB", "byte", Fraction(1024**power)))
        units.append(Unit(f"{prefix}FLOP", "operation", Fraction(1000**power)))
        if prefix in "kMG":
            units.append(Unit(f"{prefix}bit", "bit", Fraction(1000**power)))
    rates = [
        Unit(f"{unit.symbol}/s", f"{unit.dimension}/time", unit.factor)
        for unit in units
        if unit.dimension in ("byte", "bit", "token", "operation")
    ]
    return {unit.symbol: unit for unit in units + rates}


UNITS: Mapping[str, Unit] = _table()

_ACCEPTED = {"number": {"number", "times"}, "ratio": {"ratio", "number", "times"}}
"""For a measurement of this dimension, the dimensions a text may have; every other dimension takes only itself."""


def compatible(written: Unit, measured: Unit) -> bool:
    """May a text in the unit `written` quote a measurement in the unit `measured`?

    A bare number quotes a ratio (0.98 for 98 %), but a per cent never quotes a bare number.
    """
    return written.dimension in _ACCEPTED.get(measured.dimension, {measured.dimension})


def comparable(one: Unit, other: Unit) -> bool:
    """Can two texts in these units, in two languages, denote the same amount?"""
    ratios = {"ratio", "number", "times"}
    return one.dimension == other.dimension or {one.dimension, other.dimension} <= ratios
