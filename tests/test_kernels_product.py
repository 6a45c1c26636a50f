"""`python -m tests.kernels` checks every case of every operation, and says which are wrong."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.kernels import run as command


@pytest.fixture
def small(monkeypatch):
    """Two operations of three cases each, of which one is wrong and one raises."""

    def check(case):
        if case == "hidden":
            raise ValueError("a key too many")
        return "off by 1" if case == 3 else None

    there = {
        "first": SimpleNamespace(cases=lambda: iter([2, 3, 5]), check=check),
        "second": SimpleNamespace(cases=lambda: iter(["causal", "hidden", "seen"]), check=check),
    }
    monkeypatch.setattr(command, "operations", lambda: list(there))
    monkeypatch.setattr(command, "product", there.__getitem__)
    monkeypatch.setattr(command, "prepare", lambda *, gpu: None)
    monkeypatch.setattr(command, "CASES", {})


def test_what_is_wrong_is_named(small, capsys):
    """A wrong case and one that raises are told with operation and case, the others counted, and it exits 1."""
    assert command.main(["--jobs", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["wrong: first: 3: off by 1", "wrong: second: hidden: ValueError: a key too many"]
    assert lines[2].startswith("4 of 6 right in ")


def test_some_cases_by_name(small, capsys):
    """0 where all of them are right; 1 where there is none of that name."""
    assert command.main(["--jobs", "1", "--only", "second: s"]) == 0
    assert capsys.readouterr().out.startswith("1 of 1 right")
    assert command.main(["--jobs", "1", "--only", "third"]) == 1


def test_the_list(small, capsys):
    """The names that `--only` looks in."""
    assert command.main(["--list", "--only", "first"]) == 0
    assert capsys.readouterr().out.splitlines() == ["first: 2", "first: 3", "first: 5"]


def test_some_cases_by_number(small, capsys):
    """Each second one: of six, three."""
    command.main(["--list", "--every", "2"])
    assert capsys.readouterr().out.splitlines() == ["first: 2", "first: 5", "second: hidden"]


def test_some_cases_after_some(small, capsys):
    """Of every second case the first, and those behind it: a long run in parts. A number alone is no part."""
    for part, names in ((":1", ["first: 2"]), ("1:", ["first: 5", "second: hidden"]), ("1:2", ["first: 5"])):
        command.main(["--list", "--every", "2", "--slice", part])
        assert capsys.readouterr().out.splitlines() == names
    with pytest.raises(SystemExit):
        command.main(["--list", "--slice", "1"])


def test_each_thirteenth_case_meets_every_value_of_every_axis():
    """What the whole check runs of the product."""

    def values(names):
        found = {}
        for name in names:
            for axis, value in enumerate(name.split(" | ")):
                found.setdefault((name.partition(":")[0], axis), set()).add(value)
        return found

    names = [name for *_, name in command.every_case()]
    assert len(names) > 10_000
    assert values(names[::13]) == values(names)


def test_processes_of_their_own_run_the_cases():
    """Two cases in two processes, as the whole check runs them."""
    made = subprocess.run(
        [sys.executable, "-m", "tests.kernels", "--only", "forward: bare | float32 | one", "--jobs", "2"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    assert re.fullmatch(r"(\d+) of \1 right in \d+ s", made.stdout.strip())
    assert not made.stdout.startswith("0 ")
