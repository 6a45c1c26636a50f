"""The domain's housekeeping: forgetting a page, merging what a parallel reader read, and nothing but plain data."""

import pickle
from types import SimpleNamespace

import pytest

from attnbook.claims.domain import Claim, ClaimsDomain, Measured, Message
from attnbook.claims.entries import Accepts, Ledger, LedgerEntry
from attnbook.measure import Measurement

CLAIM = Claim("claim", "a.x", "3", "book/a.md", 5, "en", 0)


def domain():
    return ClaimsDomain(SimpleNamespace(domaindata={}, domains={}))


def fill(made, page):
    made.note_claim(page, CLAIM)
    made.note_measurement(page, Measurement("a.x", 3), cell=2, line=7)
    made.note_message(page, Message("m", (("claim", "a.x", "3"),)))
    made.note_chapter(page)
    made.note_reader(page)
    made.problem(page, 5, "lint", "wrong")
    return made


def test_clear_doc_forgets_a_page_and_no_other():
    """Every table that is kept by page loses the page."""
    made = fill(fill(domain(), "a"), "b")
    made.clear_doc("a")
    assert {table: list(pages) for table, pages in made.data.items() if isinstance(pages, dict)} == {
        "claims": ["b"], "measured": ["b"], "problems": ["b"], "messages": ["b"], "chapters": ["b"], "readers": ["b"],
        "shown": {} or [],
    }  # fmt: skip


def test_merging_assigns_and_takes_only_the_pages_read():
    """What a parallel reader says of its pages replaces what was there; what it says of others is ignored."""
    main, other = fill(fill(domain(), "a"), "b"), domain()
    fill(fill(other, "a"), "c")
    other.note_claim("a", CLAIM)
    main.merge_domaindata({"a", "d"}, other.data)
    main.merge_domaindata({"a", "d"}, other.data)
    assert [page for page, _ in main.claims()] == ["a", "a", "b"]
    assert [page for page, _ in main.measured()] == ["a", "b"]
    assert main.chapters() == {"a", "b"}


def test_merging_a_page_that_lost_its_claims_clears_them():
    """A page read again without claims has none."""
    main = fill(domain(), "a")
    main.merge_domaindata({"a"}, domain().data)
    assert not list(main.claims())
    assert not list(main.problems())


def test_the_data_is_plain_and_survives_pickling():
    """No nodes and no environment: the tables come back equal."""
    made = fill(domain(), "a")
    assert pickle.loads(pickle.dumps(made.data)) == made.data
    assert dict(made.measured())["a"] == Measured(Measurement("a.x", 3), 2, 7)


@pytest.mark.parametrize("value", [0.87, 3, True, None])
def test_entries_by_page_and_number(value):
    """Before judging there are none; then a page finds the entry of each of its claims."""
    made = domain()
    assert made.entries() == []
    assert made.entry("a", 0) is None
    entry = LedgerEntry("a.x", "claim", "3", value, "", "measured", None, Accepts(), "fine", "", "a.md", 1, "en",
                        docname="a", number=4)  # fmt: skip
    made.judged(Ledger("en", (entry,)))
    assert made.entry("a", 4) is entry
    assert made.entries() == [entry]
