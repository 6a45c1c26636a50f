"""The table, JSON, names, records and exit statuses of `attnbook bench`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attnbook import cli
from attnbook.bench import suite
from attnbook.bench.case import CannotRun, Case, Disagree, Finding, Target
from attnbook.bench.command import main

ROOT = Path(__file__).parents[2]


def fixed(name, figure, target=2.0, **of_target):
    """A case that always finds the same."""
    return Case(
        name,
        "made up",
        Target(target, **of_target),
        lambda setting: Finding(figure, {"a": 0.5, "b": 1.25}, ran="tiled"),
    )


def failing(name, error):
    """A case that can't be measured."""

    def run(setting):
        raise error

    return Case(name, "made up", Target(1.0), run)


@pytest.fixture
def cases(monkeypatch):
    """Puts other cases in place of the suite."""
    return lambda *made: monkeypatch.setattr(suite, "SUITE", made)


@pytest.mark.parametrize(
    ("made", "status"),
    [
        ([fixed("x", 2.5)], 0),
        ([fixed("x", 1.9)], 1),
        ([fixed("x", 2.5), failing("y", CannotRun("needs a C++ compiler"))], 2),
        ([fixed("x", 1.9), failing("y", CannotRun("needs a C++ compiler"))], 1),
        ([failing("y", Disagree("a and b differ"))], 1),
        ([fixed("x", 4.0, 3.0, at_least=False, unit="%")], 1),
    ],
)
def test_exit_status(cases, made, status, capsys):
    """0 all met; 1 missed or wrong; 2 where nothing is missed and something could not run."""
    cases(*made)
    assert main([]) == status


def test_the_table_says_figure_target_verdict_and_sides(cases, capsys):
    """Versions and threads first, then a line a case, then how many ended how; no absolute path anywhere."""
    cases(fixed("fine", 2.5), fixed("slow", 1.9), failing("absent", CannotRun("needs a C++ compiler")))
    assert main([]) == 1
    out = capsys.readouterr().out
    first, head, fine, slow, absent, last = out.splitlines()
    assert first.startswith("device cpu, threads ")
    assert "torch " in first
    assert "machine " in first
    assert "OMP_WAIT_POLICY " in first
    assert head.split() == ["case", "figure", "asked", "verdict", "ran", "medians"]
    assert fine.split(maxsplit=6) == ["fine", "2.50x", "≥", "2.00x", "ok", "tiled", "a 500 ms, b 1.25 s"]
    assert slow.split(maxsplit=6) == ["slow", "1.90x", "≥", "2.00x", "MISSED", "tiled", "a 500 ms, b 1.25 s"]
    assert absent.split(maxsplit=5) == ["absent", "≥", "1.00x", "not", "run", "needs a C++ compiler"]
    assert last.startswith("3 cases in 0 s: 1 ok, 1 MISSED, 1 not run")
    assert str(ROOT) not in out
    assert sys.prefix not in out


def test_json_holds_the_same(cases, capsys):
    """One object, in ASCII, with each case's figure, target and verdict."""
    cases(fixed("fine", 2.5), failing("absent", CannotRun("needs a C++ compiler")))
    assert main(["--json"]) == 2
    out = capsys.readouterr().out
    assert out.isascii()
    data = json.loads(out)
    fine, absent = data["cases"]
    assert {"device", "threads", "torch", "python", "seconds"} <= set(data)
    assert (fine["name"], fine["figure"], fine["target"], fine["verdict"]) == ("fine", 2.5, 2.0, "ok")
    assert (fine["sides"], fine["ran"]) == ({"a": 0.5, "b": 1.25}, "tiled")
    assert (absent["verdict"], absent["why"]) == ("not run", "needs a C++ compiler")


def test_only_runs_the_cases_that_are_named(cases, capsys):
    """By the beginning of their names; an unknown name is told the known ones."""
    cases(fixed("window-a", 2.5), fixed("window-b", 2.5), fixed("slow", 0.1))
    assert main(["--only", "window"]) == 0
    assert "slow" not in capsys.readouterr().out
    assert main(["--only", "windwo"]) == 2
    assert (
        capsys.readouterr().err
        == "python -m attnbook.bench: no case is called windwo; there are window-a, window-b, slow\n"
    )
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "slow      made up"


def test_a_device_that_is_not_here(monkeypatch, capsys):
    """Could not run, and says so in one line."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["bench", "--device", "cuda:99"]) == 2
    said = f"attnbook bench: device 'cuda:99' is not here: torch {torch.__version__} finds no CUDA device\n"
    assert capsys.readouterr() == ("", said)


def test_a_fresh_process_sets_how_threads_wait_before_torch_is_loaded():
    """And runs a real case, quickly, in JSON, exit status 0."""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    made = subprocess.run(
        [sys.executable, "-m", "attnbook.bench", "--quick", "--json", "--threads", "1", "--only", "auto-512"],
        cwd=ROOT, env=environment, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    data = json.loads(made.stdout)
    assert (data["OMP_WAIT_POLICY"], data["threads"]) == ("PASSIVE", 1)
    assert [case["verdict"] for case in data["cases"]] == ["quick"]
    loads = "import sys, attnbook.bench, attnbook.bench.case, attnbook.bench.command; print('torch' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", loads], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert made.stdout == "False\n"
