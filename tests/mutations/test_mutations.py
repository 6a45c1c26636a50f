"""The mutations fit the tree they break, and their runner tells a kill from a survivor, a crash and a stale one."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from attnbook.claims.entries import Failure, Ledger, LedgerEntry
from attnbook.measure import Measurement
from tests.mutations.__main__ import _report
from tests.mutations.mutation import Mutation, Stale
from tests.mutations.package import PACKAGE
from tests.mutations.text import TEXT
from tests.mutations.workshop import ROOT, Crash, Workshop

ALL = (*TEXT, *PACKAGE)
CLAIM = LedgerEntry.from_json(
    {
        "id": "a.b", "role": "claim", "text": "3", "value": 3, "value_type": "int", "value_text": "3", "unit": "",
        "kind": "measured", "spread": None, "accepts": {}, "verdict": "fine", "message": "", "document": "book/a.md",
        "line": 1, "language": "ja", "derived_from": [],
    }
)  # fmt: skip


def test_there_are_enough():
    """At least forty, text and package; the same break only where it names another claim."""
    assert len(ALL) >= 40
    assert len({(m.path, m.old, m.new, m.killer) for m in ALL}) == len(ALL)
    assert len({str(m) for m in ALL}) == len(ALL)


@pytest.mark.parametrize("mutation", ALL, ids=str)
def test_a_mutation_fits_what_it_breaks(mutation: Mutation):
    """What it replaces stands exactly once in the file, and it changes something."""
    assert (ROOT / mutation.path).read_text(encoding="utf-8").count(mutation.old) == 1
    assert mutation.old != mutation.new


def test_a_stale_mutation_is_refused(tmp_path: Path):
    """Text that is not there, or there twice, is no target; the file stays as it is."""
    (tmp_path / "a.md").write_text("one two two\n")
    for old in ("three", "two"):
        with pytest.raises(Stale, match="expected once"):
            Mutation("x", "a.md", old, "four", "a.b").apply(tmp_path)
    assert (tmp_path / "a.md").read_text() == "one two two\n"


class Pretended(Workshop):
    """A workshop whose builds and experiments are given."""

    def __init__(self, root: Path, *, failures: tuple[Failure, ...] = (), measured: object = None) -> None:
        self.root = root
        self.failures, self.measured = failures, measured
        (root / "attnbook").mkdir()
        (root / "attnbook" / "a.py").write_text("x = 1\n")
        (root / "a.md").write_text("one\n")

    def build(self) -> Ledger:
        assert (self.root / "a.md").read_text() == "two\n", "broken while it is judged"
        return Ledger("ja", (), self.failures)

    def remeasure(self, entry: LedgerEntry) -> dict[str, Measurement]:
        if self.measured is None:
            raise Crash("no")
        return {"a.b": Measurement("a.b", self.measured)}


def survives(workshop: Pretended, path: str, old: str, new: str) -> bool:
    workshops: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
    workshops.put(workshop)
    return _report(Mutation("why", path, old, new, "a.b"), workshops, {"a.b": [CLAIM]})


def test_a_text_is_killed_by_the_named_claim_only(tmp_path: Path):
    """Green is survival; red by another claim, or for another reason, is no kill; the file is mended after."""
    cases = {
        (): True,
        (Failure("a.md", 1, "drift", "claim a.b says 4, measured 3"),): False,
        (Failure("a.md", 1, "drift", "claim a.c says 4, measured 3"),): True,
        (Failure("a.md", 1, "drift", "claim a.bc says 4, measured 3"),): True,
        (Failure("a.md", 1, "drift", "claim a.b.c says 4, measured 3"),): True,
        (Failure("a.md", 1, "unreadable", "claim a.b says 4k"),): True,
    }
    for number, (failures, survived) in enumerate(cases.items()):
        root = tmp_path / str(number)
        root.mkdir()
        workshop = Pretended(root, failures=failures)
        assert survives(workshop, "a.md", "one", "two") is survived
        assert (root / "a.md").read_text() == "one\n"


@pytest.mark.parametrize(("measured", "survived"), [(3, True), (4, False), (float("nan"), False), (None, True)])
def test_code_is_killed_by_a_claim_and_not_by_a_crash(tmp_path: Path, measured: object, survived: bool):
    """The same number is survival, another one or NaN a kill, an experiment that raises none."""
    assert survives(Pretended(tmp_path, measured=measured), "attnbook/a.py", "1", "2") is survived
