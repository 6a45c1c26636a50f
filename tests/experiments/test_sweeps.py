"""Sweeps: experiments too long for a build become records, and a chapter quotes what they measured."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from attnbook.experiments.sweeps import SWEEPS, main
from tests.bookkit.small_book import chapter

ROOT = Path(__file__).parents[2]

DICE = """
from fractions import Fraction

from attnbook.experiments._dice_sides import SIDES
from attnbook.measure import experiment, measure, measure_mean


@experiment
def run():
    measure("dice.sides", SIDES + 0)


@experiment
def sweep():
    measure_mean("dice.mean", [3.49, 3.5, 3.51])
    measure("dice.share", Fraction(1, SIDES + 0), unit="ratio")
    measure("dice.six", SIDES + 0 == 6)
"""

CONF = """
claims_ledger_json = "_build/ledger.json"
extensions = ["myst_nb", "attnbook.claims"]
project = "small"
exclude_patterns = ["_build"]
html_theme = "basic"


def setup(app):
    from attnbook.bookkit import finished, reader

    reader.setup(app)
    finished.setup(app)
"""

PROSE = "{claim}`3.5 <dice.mean>` on average, {holds}`of six sides <dice.six>`, {claim}`1/6 <dice.share>` each."


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package with a sweep of its own, and a book whose one chapter quotes it."""
    shutil.copytree(ROOT / "attnbook", tmp_path / "attnbook", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "attnbook" / "experiments"
    (folder / "dice.py").write_text(DICE)
    (folder / "_dice_sides.py").write_text("SIDES = 6\n")
    source = (folder / "sweeps.py").read_text(encoding="utf-8")
    changed, times = re.subn(r"^SWEEPS: .*?\)$", 'SWEEPS = ("dice",)', source, flags=re.MULTILINE | re.DOTALL, count=1)
    assert times == 1
    (folder / "sweeps.py").write_text(changed, encoding="utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "conf.py").write_text(CONF)
    page = chapter("from attnbook.experiments.sweeps import kept\nprint(kept('dice'))", prose=PROSE)
    (tmp_path / "book" / "index.md").write_text(page)
    return tmp_path


def python(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip


def test_a_chapter_quotes_what_a_sweep_kept_until_a_source_changes(tree: Path):
    """Red without a record, green with it, and red again once a module behind it says something else."""
    done = python(tree, "attnbook.experiments.sweeps", "--list")
    assert (done.returncode, done.stdout.split(":")[:2]) == (1, ["dice", " no record"])
    done = python(tree, "attnbook.bookkit", "build", "book")
    assert done.returncode
    assert "record records/dice.json not found" in done.stdout + done.stderr

    done = python(tree, "attnbook.experiments.sweeps")
    assert done.returncode == 0, done.stderr
    assert "dice: 3 values in book/records/dice.json" in done.stdout
    record = json.loads((tree / "book" / "records" / "dice.json").read_text(encoding="utf-8"))
    assert {"attnbook/experiments/dice.py", "attnbook/experiments/_dice_sides.py"} <= set(record["sources"])
    assert record["command"] == "python -m attnbook.experiments.sweeps dice"
    done = python(tree, "attnbook.bookkit", "build", "book")
    assert done.returncode == 0, done.stdout + done.stderr
    ledger = json.loads((tree / "book" / "_build" / "ledger.json").read_text(encoding="utf-8"))
    today = datetime.now(UTC).date().isoformat()
    assert [(e["id"], e["kind"], e["source"], e["device"], e["date"]) for e in ledger["claims"]] == [
        (ident, "recorded", "book/records/dice.json", record["device"], today)
        for ident in ("dice.mean", "dice.six", "dice.share")
    ]
    assert "fresh" in python(tree, "attnbook.experiments.sweeps", "--list", "dice").stdout

    (tree / "attnbook" / "experiments" / "_dice_sides.py").write_text("SIDES = 8\n")
    done = python(tree, "attnbook.experiments.sweeps", "--list")
    assert done.returncode == 1
    assert "dice: STALE" in done.stdout
    assert "attnbook/experiments/_dice_sides.py changed since" in done.stdout
    done = python(tree, "attnbook.bookkit", "build", "book")
    assert done.returncode
    assert done.stderr.count("from a stale record: attnbook/experiments/_dice_sides.py changed") == 3


def test_every_sweep_that_is_named_is_there():
    """A module that has one, each named once."""
    assert len(set(SWEEPS)) == len(SWEEPS)
    for name in SWEEPS:
        assert callable(importlib.import_module(f"attnbook.experiments.{name}").sweep)


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]):
    """With what there is."""
    assert main(["no_such_thing"]) == 2
    assert "no sweep no_such_thing; there are: " in capsys.readouterr().err
