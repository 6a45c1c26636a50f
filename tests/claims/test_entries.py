"""Ledger entries as JSON, and files written whole or not at all."""

import json
import math
import stat
from fractions import Fraction
from pathlib import Path

import pytest

from attnbook.claims.entries import Accepts, Failure, Ledger, LedgerEntry, in_order, write_whole


def entry(value, **fields):
    return LedgerEntry(
        "a.x", "claim", "3", value, "B", "measured", 0.5, Accepts(2.5, None, False, True, "2.5 to 3.5"), "fine", "",
        "book/a.md", 5, "en", settings={"d": "64"}, derived_from=("a.y",), **fields,
    )  # fmt: skip


@pytest.mark.parametrize("value", [3, 0.1, True, Fraction(1, 3), math.inf, -math.inf, None, 10**30, 2.0])
def test_an_entry_survives_json(value):
    """Every kind of value comes back equal and of the same type, through strict JSON."""
    text = json.dumps(Ledger("en", (entry(value),)).as_json(), allow_nan=False)
    (back,) = Ledger.from_json(json.loads(text)).entries
    assert back == entry(value)
    assert type(back.value) is type(value)


def test_nan_survives_json():
    """NaN, which equals nothing, comes back as NaN."""
    (back,) = Ledger.from_json(json.loads(json.dumps(Ledger("en", (entry(math.nan),)).as_json()))).entries
    assert isinstance(back.value, float)
    assert math.isnan(back.value)


def test_a_ledger_counts_and_keeps_its_failures():
    """judged, unowned and the failures are in the file."""
    failures = (Failure("b", 2, "unowned", "x"), Failure("a", 1, "drift", "y"))
    data = Ledger("en", (entry(3),), failures).as_json()
    assert (data["judged"], data["unowned"]) == (1, 1)
    assert Ledger.from_json(data).failures == failures


def test_another_version_is_refused():
    """A ledger of another version is not half understood."""
    with pytest.raises(ValueError, match=r"ledger version 99, expected 1: build again"):
        Ledger.from_json({"version": 99})


def test_failures_are_ordered_by_place_and_told_once():
    """By file, then by line as a number; equal ones are one."""
    a, b, c = Failure("a", 10, "x", "m"), Failure("a", 9, "x", "m"), Failure("b", 1, "x", "m")
    assert in_order([c, a, b, a]) == (b, a, c)


def test_where_a_translated_claim_is_mended():
    """In the catalogue, not in the source."""
    assert entry(3).place == "book/a.md:5"
    assert entry(3, po="book/a.po", po_line=7).place == "book/a.po:7"


def test_write_whole_replaces_and_leaves_nothing_beside(tmp_path: Path):
    """A new file in a new folder, then a replacement; readable like any other file."""
    path = tmp_path / "new" / "a.json"
    write_whole(path, "one")
    write_whole(path, "two")
    assert path.read_text() == "two"
    assert [item.name for item in path.parent.iterdir()] == ["a.json"]
    other = path.with_name("b")
    other.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_write_whole_leaves_the_old_file_when_it_fails(tmp_path: Path):
    """A text that cannot be encoded fails before anything is replaced."""
    path = tmp_path / "a.json"
    write_whole(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "one"
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]
