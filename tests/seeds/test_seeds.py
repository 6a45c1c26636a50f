"""The book's random experiments at other seeds: a claim that only the book's own seed bears out is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbook.claims.entries import LedgerEntry
from tests.claims.tiny import Project, measured
from tests.seeds.__main__ import main
from tests.seeds.rerun import Job, jobs

DICE = """
import random

from attnbook.measure import experiment, measure


@experiment
def run(seed: int = 3, sides: int = 6) -> None:
    if seed == 5003:
        raise ValueError("no such dice")
    thrown = [random.Random(f"{seed} {i}").randint(1, sides) for i in range(600)]
    measure("dice.mean", sum(thrown) / len(thrown))
    measure("dice.first", thrown[0])
    measure("dice.spread", 3.4, spread=0.04 if seed == 2003 else None)
    measure("dice.lucky", seed == 3)
    if seed < 4000:
        measure("dice.sides", max(thrown))
"""


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A book of one page about dice, thrown by an experiment beside it."""
    (tmp_path / "seeds_dice.py").write_text(DICE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Project(tmp_path)


def quoting(**values: object) -> str:
    """The measurements as the book's seed gave them."""
    by = """experiment="seeds_dice" settings={"seed":"3","sides":"6"}"""
    return "".join(measured(f"dice.{name}", value, by) for name, value in values.items())


def seeds(book: Project, *options: str) -> int:
    """Build, and ask other seeds."""
    built = book.build()
    assert (built.code, built.failures) == (0, [])
    (ledger,) = book.out.glob("*/ledger.json")
    return main(["--ledger", str(ledger), "--jobs", "1", *options])


def test_a_claim_that_one_seed_bears_out_is_told(book: Project, capsys: pytest.CaptureFixture[str]):
    """Green in the build, wrong elsewhere: how often, how far, and where it stands; a right one is no failure."""
    page = "# Dice\n\nThe first shows {claim}`4 <dice.first>`, the mean is {claim}`3.3〜3.7 <dice.mean>`.\n\n"
    book.write("index.md", f"{page}{{holds}}`We are lucky <dice.lucky>`.\n\n{quoting(first=4, mean=3.5, lucky=True)}")
    assert seeds(book, "--seeds", "4") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seeds_dice: 2 of 3 FAIL at 4 seeds, ")
    assert lines[1].startswith("  book/index.md:3: claim dice.first says 4 (accepts exactly 4): ")
    assert "BROKEN at " in lines[1]
    assert "of 4 seeds, worst " in lines[1]
    assert lines[2] == (
        "  book/index.md:5: holds dice.lucky says We are lucky: FALSE at 4 of 4 seeds: 1003, 2003, 3003, 4003"
    )
    assert "dice.mean says 3.3〜3.7" in lines[3]
    assert "BROKEN" not in lines[3]
    assert lines[-1].startswith("3 texts of 1 experiments at 4 seeds: 2 fail, ")


def test_what_every_seed_bears_out_passes(book: Project, capsys: pytest.CaptureFixture[str]):
    """What the build would only doubt at another seed is told and passes; with --quiet nothing else is told."""
    page = "# Dice\n\nThe mean is {claim}`3.3〜3.7 <dice.mean>`, or {claim}`3.4 <dice.spread>`.\n\n"
    book.write("index.md", page + quoting(mean=3.5, spread=3.4))
    assert seeds(book, "--seeds", "3", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seeds_dice: all 2 hold at 3 seeds")
    assert lines[1].endswith("always 3.4, the build would call it fragile at 1")
    assert len(lines) == 3


def test_a_seed_that_raises_or_measures_less_is_a_failure(book: Project, capsys: pytest.CaptureFixture[str]):
    """What was not measured bears nothing out."""
    book.write("index.md", f"# Dice\n\nThere are {{claim}}`6 <dice.sides>` sides.\n\n{quoting(sides=6)}")
    assert seeds(book, "--seeds", "5") == 1
    out = capsys.readouterr().out
    assert "  seed 5003 raised ValueError: no such dice\n" in out
    assert "says 6 (accepts exactly 6): always 6, NOT MEASURED at 2 of 5 seeds" in out


def test_nothing_to_run_is_no_success(book: Project, capsys: pytest.CaptureFixture[str]):
    """A word that nothing holds, or a book without random experiments."""
    book.write("index.md", "# Dice\n\nThe mean is {claim}`3.5 <dice.mean>`.\n\n" + quoting(mean=3.5))
    assert seeds(book, "--seeds", "2", "cards") == 2
    assert "cards" in capsys.readouterr().out


def test_jobs_are_experiments_with_their_settings():
    """One with a seed, once for each of its settings, whatever pages quote it; words choose experiments whole."""
    a = entry("a.x", settings={"seed": "3", "n": "8"})
    b = entry("a.y", settings={"n": "8", "seed": "3"}, document="book/b.md")
    c = entry("a.x", settings={"seed": "3", "n": "9"})
    told = jobs([a, b, c, entry("a.z", settings={"n": "8"}), entry("c.x", experiment="", settings={"seed": "1"})])
    assert [job.entries for job in told] == [(a, b), (c,)]
    assert [job.entries for job in jobs([a, b, c], ["book/b"])] == [(a, b)]
    assert [job.entries for job in jobs([a, b, c], ["a.x"])] == [(a, b), (c,)]


def test_the_seeds_are_others_and_far_apart():
    """None is the book's, and `seed + 1` of one is not another."""
    chosen = Job("pkg.thing", {"seed": "3"}, ()).seeds(20)
    assert len(set(chosen)) == 20
    assert all(abs(one - other) >= 1000 for one in [3, *chosen] for other in chosen if one != other)


def entry(
    ident: str, *, settings: dict[str, str], experiment: str = "pkg.e", document: str = "book/a.md"
) -> LedgerEntry:
    return LedgerEntry.from_json(
        {
            "id": ident, "role": "claim", "text": "3", "value": 3, "value_type": "int", "value_text": "3", "unit": "",
            "kind": "measured", "spread": None, "accepts": {}, "verdict": "fine", "message": "", "document": document,
            "line": 1, "language": "ja", "derived_from": [], "experiment": experiment, "settings": settings,
        }
    )  # fmt: skip
