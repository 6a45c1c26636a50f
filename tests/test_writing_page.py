"""The page on writing a chapter: its example is a chapter that builds, and its table of numbers is true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from attnbook.claims.judge import accepts
from attnbook.claims.numerals import read
from attnbook.measure import Measurement

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "book" / "appendix" / "writing.md").read_text(encoding="utf-8")
BLOCKS = [(m[2], m[3]) for m in re.finditer(r"^(`{3,})(\w+)\n(.*?)^\1$", PAGE, re.MULTILINE | re.DOTALL)]


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def test_its_example_is_a_chapter_that_builds(tmp_path: Path):
    """The experiment and the pieces of a chapter, copied from the page as they stand, make a green book."""
    shutil.copytree(ROOT / "attnbook", tmp_path / "attnbook", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "book").mkdir()
    for name in ("conf.py", "references.bib"):
        shutil.copy(ROOT / "book" / name, tmp_path / "book" / name)
    for name in ("_static", "_templates"):
        shutil.copytree(ROOT / "book" / name, tmp_path / "book" / name)
    (experiment,) = blocks("python")
    (tmp_path / "attnbook" / "experiments" / "dice.py").write_text(experiment, encoding="utf-8")
    pieces = blocks("md")
    chapter = "\n".join(piece for piece in pieces if "{claim}`?" not in piece)
    assert "{code-cell}" in chapter
    assert "{plot}" in chapter
    assert "{claim}" in chapter
    (tmp_path / "book" / "index.md").write_text(chapter, encoding="utf-8")
    done = build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

    (asking,) = [piece for piece in pieces if "{claim}`?" in piece]
    (tmp_path / "book" / "index.md").write_text(chapter + "\n" + asking, encoding="utf-8")
    done = build(tmp_path)
    assert done.returncode == 1
    assert re.search(r"index\.md:\d+: claim dice\.mean is a placeholder: write .*3\.5", done.stderr)


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attnbook.bookkit", "build", "book", "--strict"],
        cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True, encoding="utf-8",
        check=False,
    )  # fmt: skip


(TABLE,) = (block for block in blocks("text") if block.startswith("書いた形"))


@pytest.mark.parametrize("row", TABLE.splitlines()[1:])
def test_its_table_says_what_the_judge_accepts(row: str):
    """Written form, lower end, upper end."""
    text, low, high = row.split()
    unit = "ratio" if text.endswith(("倍", "%")) else ""
    interval = accepts(read(text, "ja"), Measurement("a.b", 1, unit=unit))
    assert (interval.low, interval.high) == (Fraction(low), Fraction(high))
