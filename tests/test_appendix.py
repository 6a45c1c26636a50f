"""Pages of the appendix that point elsewhere: what they point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAILURES = (ROOT / "book" / "appendix" / "failures.md").read_text("utf-8")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\* (.+)$", FAILURES, re.MULTILINE)
GROUPS = re.split(r"^## ", FAILURES, flags=re.MULTILINE)[1:]


def test_failures_are_many_and_in_groups():
    """Every line of the lists is an entry with a title and its story."""
    assert len(ENTRIES) == len(re.findall(r"^- ", FAILURES, re.MULTILINE)) >= 10
    assert len({title for title, _ in ENTRIES}) == len(ENTRIES)
    assert all(len(re.findall(r"^- ", group, re.MULTILINE)) >= 3 for group in GROUPS)


@pytest.mark.parametrize(("title", "story"), ENTRIES, ids=[title for title, _ in ENTRIES])
def test_a_failure_says_where_its_reason_lives(title, story):
    """At its end a file or a folder of the repository, or a section of the book; Sphinx looks for the latter."""
    end = re.search(r"。(?:`([\w/.]+)`|\{ref\}`[\w-]+`)$", story)
    assert end, f"{title}: no place at its end"
    assert end[1] is None or (ROOT / end[1]).exists()
