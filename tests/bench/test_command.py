"""The table, JSON, names, records and exit statuses of `attnbook bench`."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from attnbook import cli
from attnbook.bench import command, suite
from attnbook.bench.case import CannotRun, Case, Disagree, Finding, Target, Verdict
from attnbook.bench.command import main
from attnbook.bench.report import Table

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


@pytest.mark.parametrize(("device", "made_current"), [("cuda", []), ("cuda:1", [1])])
def test_a_device_by_number_becomes_the_current_one(device, made_current, monkeypatch):
    """Triton launches there; without a number the current one is meant, which torch takes no name for."""
    current = []
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert command._taken(device) == ""
    assert current == made_current


def test_kernels_that_would_be_interpreted_measure_no_gpu(monkeypatch):
    """And a number that no device has is an answer, not a traceback."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert command._taken("cuda").startswith("TRITON_INTERPRET is set")

    def refuse(index):
        raise RuntimeError("CUDA error: invalid device ordinal\nand more")

    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    assert command._taken("cuda:7") == "device 'cuda:7' is not here: CUDA error: invalid device ordinal"


def test_a_case_that_fails_leaves_the_others(cases, capsys):
    """Its traceback is printed, its verdict is no pass, and what needs it is not run."""
    needing = dataclasses.replace(fixed("z", 2.5), needs=("y",))
    cases(fixed("x", 2.5), failing("y", RuntimeError("out of memory\nin detail")), needing)
    assert main([]) == 1
    out, err = capsys.readouterr()
    assert "RuntimeError: out of memory" in err
    lines = out.splitlines()[2:]
    assert [line.split()[0] for line in lines[:3]] == ["x", "y", "z"]
    assert lines[1].endswith("FAILED    RuntimeError: out of memory")
    assert lines[2].endswith("not run   y before it: FAILED")


def test_what_is_named_brings_what_it_needs(cases, capsys):
    """Its checks run first."""
    cases(fixed("check", 2.5), fixed("other", 2.5), dataclasses.replace(fixed("speed", 2.5), needs=("check",)))
    assert main(["--only", "speed", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["check", "speed"]


def test_a_run_has_so_many_minutes(cases, capsys):
    """What is planned for longer is not begun; what runs on is stopped."""

    def run_on(setting):
        while True:
            time.sleep(0.001)

    cases(Case("endless", "made up", Target(1.0), run_on, planned=0.0), fixed("late", 2.5))
    assert main(["--minutes", "0.005"]) == 2
    endless, late = capsys.readouterr().out.splitlines()[2:4]
    assert endless.endswith("not run   the run's time was up before it had ended")
    assert late.endswith("not run   planned for 20 s, and 0 s of 0 s are left")


def test_a_gpus_line_has_rates_ratios_and_who_is_absent():
    """TFLOP/s of each side, the share of the ceiling, the ratio to the best of torch."""
    found = Finding(
        380.0, {"attnbook": 1e-3, "cudnn": 7e-4}, ran="triton", rates={"attnbook": 380.0, "cudnn": 520.0},
        rate_unit="TFLOP/s", shares={"of mm": 0.54, "over cudnn": 0.73}, absent={"flex": "needs a compiler"},
    )  # fmt: skip
    case = Case("forward", "made up", Target(353.0, unit="TFLOP/s", card="H200"), lambda setting: found)
    line = Table([case]).line(Verdict(case, "ok", found))
    assert line.split(maxsplit=7)[:7] == ["forward", "380.0", "TFLOP/s", "≥", "353.0", "TFLOP/s", "ok"]
    assert line.endswith(
        "0.54 of mm, 0.73x over cudnn; attnbook 380 TFLOP/s in 1 ms, cudnn 520 TFLOP/s in 0.7 ms; "
        "without flex: needs a compiler"
    )


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
