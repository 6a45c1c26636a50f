"""README: what it shows runs, what it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from attnbook.bookkit.execute import TIMEOUT
from attnbook.bookkit.lints import CELL_LINES
from attnbook.cli import main
from attnbook.lab.exercise import solution_source

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_package_snippet_runs(capsys):
    """The lines under "Use the package" give what the section says."""
    section = README.split("## Use the package")[1].split("\n## ")[0]
    snippet, opening = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert names["out"].shape == (1, 32, 1000, 64)
    assert names["lse"].shape == (1, 32, 1000)
    first = names["v"][:, :, 0].repeat_interleave(4, dim=1)
    torch.testing.assert_close(names["out"][:, :, 0], first)  # the first query sees itself alone
    assert names["new"].shape == (1, 32, 1, 64)
    assert names["cache_bytes"] == 240 * 2**30
    assert "tiled     runs" in capsys.readouterr().out
    exec(opening, names)
    t = len(names["tokens"])
    assert names["weights"].shape == (30, 9, t, t)
    assert names["logits"].shape == (1, t, 49152)
    assert "Paris" in capsys.readouterr().out


def test_the_lab_says_what_it_shows(tmp_path, monkeypatch, capsys):
    """The solution with that one mistake, checked by that command, is told just this."""
    section = README.split("## Write it yourself")[1].split("\n## ")[0]
    right, wrong = "sum(axis=-1, keepdims=True)", "sum(axis=0)"
    assert "`sum(axis=0)` where `sum(axis=-1)` belongs" in section
    monkeypatch.chdir(tmp_path)
    Path("attnbook-lab").mkdir()
    text = solution_source("1")
    assert text.count(right) == 1
    Path("attnbook-lab/step1_three_lines.py").write_text(text.replace(right, wrong), encoding="utf-8")
    (command,) = re.findall(r"`attnbook (lab check[^`]*)` says", section)
    assert main(command.split()) == 1
    assert capsys.readouterr().out == re.findall(r"```text\n(.*?)```", section, re.DOTALL)[0]


def test_its_sessions_are_the_noxfile_s():
    """The table lists every session, and only those."""
    table = README.split("| session |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    defined = re.findall(r"^@nox\.session\ndef (\w+)", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(defined)


def test_ci_runs_the_two_commands_as_readme_has_them():
    """What README promises is what is checked, word for word."""
    commands = re.findall(r"^    (python -m pip install nox && .*)$", README, re.MULTILINE)
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert len(commands) == 2
    assert set(commands) <= set(run)


def test_files_that_the_documents_name_are_there():
    """Paths in README and CONTRIBUTING exist, but for what a build makes."""
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for path in re.findall(r"`((?:book|tests|attnbook|\.ci)/[\w./-]+)`", text):
            if "_build" not in path and "NAME" not in path and "NN-" not in path:
                assert (ROOT / path).exists(), f"{page} names {path}"


def test_limits_that_the_documents_spell_out_are_the_code_s():
    """Two minutes a cell, ten lines a cell."""
    assert ("may run for two minutes" in README, TIMEOUT) == (True, 2 * 60)
    assert ("at most ten lines" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), CELL_LINES) == (True, 10)
