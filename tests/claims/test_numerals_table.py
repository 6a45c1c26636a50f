"""The table of written numbers is the specification of reading: every row of it holds."""

import csv
import re
from fractions import Fraction
from pathlib import Path

import pytest

from attnbook.claims.numerals import Unreadable, read

with (Path(__file__).parent / "numerals_table.csv").open(encoding="utf-8", newline="") as _file:
    ROWS = list(csv.DictReader(_file))

_NUMBER = r"-?[0-9]+(?:\.[0-9]+|/[0-9]+)?"
_TWO_ENDS = re.compile(rf"(?P<low>{_NUMBER}) (?P<below><=?) x (?P<above><=?) (?P<high>{_NUMBER})")
_ONE_END = re.compile(rf"x (?P<sign>==|<=|>=|<|>) (?P<end>{_NUMBER})")


def _accepted(reading):
    """The accepted interval in the notation of the table, as numbers and open flags."""
    return reading.low, reading.high, reading.low_open, reading.high_open


def _wanted(accepts):
    if match := _TWO_ENDS.fullmatch(accepts):
        return Fraction(match["low"]), Fraction(match["high"]), match["below"] == "<", match["above"] == "<"
    match = _ONE_END.fullmatch(accepts)
    assert match is not None, f"the table's {accepts!r} is no interval"
    end, sign = Fraction(match["end"]), match["sign"]
    if sign == "==":
        return end, end, False, False
    return (None, end, False, sign == "<") if sign[0] == "<" else (end, None, sign == ">", False)


def _ids(row):
    return f"{row['language']}:{row['text']}"


@pytest.mark.parametrize("row", [row for row in ROWS if not row["accepts"].startswith("error")], ids=_ids)
def test_a_written_number_is_read_as_the_table_says(row):
    """Accepted interval with its open ends, unit, and the amount that the text denotes."""
    reading = read(row["text"], row["language"])
    if row["accepts"] in ("nan", "inf", "-inf"):
        assert (reading.special, reading.kind) == (row["accepts"], "special")
        return
    assert _accepted(reading) == _wanted(row["accepts"])
    assert reading.unit == row["unit"]
    denoted = reading.ends or (reading.value,)
    assert denoted == tuple(Fraction(number) for number in row["denotes"].split(".."))


@pytest.mark.parametrize("row", [row for row in ROWS if row["accepts"].startswith("error")], ids=_ids)
def test_what_is_no_number_is_refused_with_its_reason_and_a_way_out(row):
    """A refusal names the text, why it cannot be read, and what to write instead."""
    with pytest.raises(Unreadable) as refused:
        read(row["text"], row["language"])
    error = refused.value
    assert row["accepts"].removeprefix("error").lstrip(": ") in f"{error.reason} {error.hint}"
    assert error.text == row["text"]
    assert error.hint
    assert repr(row["text"]) in str(error)


def test_the_table_is_large_and_says_nothing_twice():
    """At least 150 strings, in three languages, none listed twice."""
    texts = {(row["language"], row["text"]) for row in ROWS}
    assert len(texts) == len(ROWS) >= 150
    assert {row["language"] for row in ROWS} == {"ja", "ko", "en"}
