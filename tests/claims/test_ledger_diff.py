"""What moved between two builds."""

from dataclasses import replace
from fractions import Fraction

import pytest

from attnbook.claims.entries import Accepts, Ledger, LedgerEntry
from attnbook.claims.ledger_diff import compare

CRUST = LedgerEntry(
    "bread.crust", "claim", "0.95", 0.95, "", "measured", None, Accepts(0.945, 0.955, False, True, "0.945 to 0.955"),
    "fine", "", "docs/crust.md", 5, "en", number=0, docname="crust",
)  # fmt: skip


def ledger(*entries):
    return Ledger("en", entries)


def test_nothing_moved():
    """Two equal builds differ in nothing, and a sentence that moved down its page has not changed."""
    difference = compare(ledger(CRUST), ledger(replace(CRUST, line=17, number=3)))
    assert not difference
    assert str(difference) == "nothing moved"


def test_added_and_removed():
    """A claim in only one of the builds is named with its place and text."""
    other = replace(CRUST, id="bread.crumb", text="3", line=7)
    difference = compare(ledger(CRUST), ledger(other))
    assert str(difference) == (
        "added (1)\n  docs/crust.md:7: bread.crumb says 3\n\nremoved (1)\n  docs/crust.md:5: bread.crust says 0.95"
    )


def test_value_moved_once_however_often_it_is_quoted():
    """A measurement that moved is told once, with how far; the verdict of each claim on it is told too."""
    twice = (CRUST, replace(CRUST, text="about 1", line=9, number=1))
    moved = (replace(twice[0], value=0.76, verdict="drift"), replace(twice[1], value=0.76, verdict="drift"))
    assert str(compare(ledger(*twice), ledger(*moved))) == (
        "value moved (1)\n"
        "  bread.crust: 0.95 -> 0.76 (-20.00%)\n"
        "\n"
        "verdict changed (2)\n"
        "  docs/crust.md:5: bread.crust: fine -> drift\n"
        "  docs/crust.md:9: bread.crust: fine -> drift"
    )


def test_text_changed():
    """The same claim with another literal was rewritten, not removed and added."""
    difference = compare(ledger(CRUST), ledger(replace(CRUST, text="0.950")))
    assert str(difference) == "text changed (1)\n  docs/crust.md:5: bread.crust: 0.95 -> 0.950"


def test_a_claim_put_in_front_is_added():
    """Equal texts find each other first: the new one is the added one."""
    new = replace(CRUST, text="about 1", line=3)
    difference = compare(ledger(CRUST), ledger(new, replace(CRUST, line=9, number=1)))
    assert [standing.text for standing in difference.added] == ["about 1"]
    assert not difference.texts
    assert not difference.removed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"value": 3}, {"value": 3.0}, ""),
        ({"value": float("nan")}, {"value": float("nan")}, ""),
        ({"value": 0}, {"value": 3}, "bread.crust: 0 -> 3"),
        ({"value": 2.0}, {"value": float("nan")}, "bread.crust: 2 -> nan"),
        ({"value": True}, {"value": False}, "bread.crust: True -> False"),
        ({"value": None}, {"value": 2}, "bread.crust: nothing -> 2"),
        ({"value": Fraction(1, 4)}, {"value": Fraction(1, 2)}, "bread.crust: 1/4 -> 1/2 (+100.00%)"),
        ({"value": -4}, {"value": -5}, "bread.crust: -4 -> -5 (-25.00%)"),
        ({"value": 8, "unit": "GB"}, {"value": 8, "unit": "GiB"}, "bread.crust: 8 GB -> 8 GiB"),
    ],
)
def test_kinds_of_values(old, new, said):
    """Any value is compared; a percentage is given only where it means something."""
    difference = compare(ledger(replace(CRUST, **old)), ledger(replace(CRUST, **new)))
    assert [str(moved) for moved in difference.values] == ([said] if said else [])


def test_two_languages_are_not_compared():
    """Ledgers of two languages hold different texts."""
    with pytest.raises(ValueError, match="a ledger in 'en' and one in 'ko' hold different texts"):
        compare(Ledger("en", (CRUST,)), Ledger("ko", (CRUST,)))


def test_as_json_is_plain():
    """The difference as JSON has the same five lists."""
    difference = compare(ledger(CRUST), ledger(replace(CRUST, value=0.9)))
    assert difference.as_json() == {
        "added": (), "removed": (), "texts": (), "verdicts": (),
        "values": ({"id": "bread.crust", "old": "0.95", "new": "0.9", "relative": pytest.approx(-1 / 19)},),
    }  # fmt: skip
