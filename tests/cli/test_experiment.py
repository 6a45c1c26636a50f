"""`attnbook experiment`: the list, a run, its settings and its failures."""

import json
import sys

import pytest

from attnbook import cli, experiments
from attnbook.measure import Measurement

LOAVES = '''
"""How many loaves
fit into the oven?

More about ovens.
"""

from attnbook.measure import experiment, measure


@experiment
def run(rows: int = 3, shelves: int = 5, spread: float = 0.0):
    print("baking")
    measure("loaves.count", rows * shelves)
    measure("loaves.rows", rows, kind="parameter")
    measure("loaves.mean", rows / 7, spread=spread)
'''

BURNT = '''
"""What happens without water?"""


def run(hours):
    raise ZeroDivisionError("no water")
'''

UNDECORATED = '''
"""Nothing is measured here."""


def run():
    return {}
'''

NEEDS_FLOUR = '''
"""What does flour weigh?"""

import flour_that_is_not_installed


def run():
    return {}
'''


@pytest.fixture
def kitchen(tmp_path, monkeypatch):
    """A folder of experiments in place of the package's own."""
    sources = {"loaves": LOAVES, "burnt": BURNT, "undecorated": UNDECORATED, "needs_flour": NEEDS_FLOUR, "_own": BURNT}
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source.lstrip())
    (tmp_path / "helper.py").write_text('"""No run here."""\n')
    monkeypatch.setattr(experiments, "__path__", [str(tmp_path)])
    yield tmp_path
    for name in sources:
        sys.modules.pop(f"attnbook.experiments.{name}", None)
        vars(experiments).pop(name, None)


def test_list_shows_the_question_and_the_settings_without_importing(kitchen, capsys):
    """The list is read from the sources: an experiment whose dependency is missing is listed too, a helper is not."""
    assert cli.main(["experiment"]) == 0
    assert capsys.readouterr().out == (
        "burnt        What happens without water?\n"
        "             settings: hours\n"
        "loaves       How many loaves fit into the oven?\n"
        "             settings: rows=3, shelves=5, spread=0.0\n"
        "needs_flour  What does flour weigh?\n"
        "undecorated  Nothing is measured here.\n"
    )
    assert "attnbook.experiments.loaves" not in sys.modules


def test_list_as_json(kitchen, capsys):
    """`--json` gives name, question and settings of each."""
    assert cli.main(["experiment", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(listed) == {"burnt", "loaves", "needs_flour", "undecorated"}
    assert listed["loaves"]["question"] == "How many loaves fit into the oven?"
    assert listed["loaves"]["settings"] == {"rows": "3", "shelves": "5", "spread": "0.0"}


def test_run_prints_measurements(kitchen, capsys):
    """A run prints each measurement; the kind is said where it is not `measured`; chatter goes to standard error."""
    assert cli.main(["experiment", "loaves", "--set", "rows=7", "--set", "spread=0.25"]) == 0
    captured = capsys.readouterr()
    assert captured.out == (
        "loaves.count = 35\n"
        "loaves.rows = 7  [parameter]\n"
        "loaves.mean = 1 (standard deviation 0.25)\n"
    )  # fmt: skip
    assert captured.err == "baking\n"


def test_run_as_json_round_trips(kitchen, capsys):
    """`--json` is a list of measurements that `Measurement.from_json` reads back, settings included."""
    assert cli.main(["experiment", "loaves", "--json", "--set", "shelves=11"]) == 0
    count = Measurement.from_json(json.loads(capsys.readouterr().out)[0])
    assert (count.id, count.value, count.kind) == ("loaves.count", 33, "measured")
    assert count.settings == {"rows": "3", "shelves": "11", "spread": "0.0"}
    assert count.experiment == "attnbook.experiments.loaves"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["loavs"], "there is no experiment 'loavs'; there are: burnt, loaves, needs_flour, undecorated"),
        (["_own"], "there is no experiment '_own'; there are: burnt, loaves, needs_flour, undecorated"),
        (["loaves", "--set", "rows"], "--set rows: expected KEY=VALUE"),
        (["loaves", "--set", "row=3"], "experiment loaves has no setting 'row'; it has: rows, shelves, spread"),
        (["loaves", "--set", "rows=3", "--set", "rows=5"], "--set rows is given twice"),
        (
            ["loaves", "--set", "rows=three"],
            "--set rows=three: 'three' is not a Python literal (a text needs its quotes)",
        ),
        (["burnt"], "experiment burnt needs --set for: hours"),
        (["burnt", "--set", "hours=2"], "experiment burnt failed: ZeroDivisionError: no water"),
        (["undecorated"], "experiment undecorated returned dict: decorate run with @experiment"),
        (
            ["needs_flour"],
            "experiment needs_flour needs flour_that_is_not_installed, which is not installed: "
            "pip install 'attnbook[torch]'",
        ),
        (["--set", "rows=3"], "--set needs the name of an experiment"),
    ],
)
def test_what_cannot_run_says_why(kitchen, capsys, arguments, message):
    """Every way to fail is exit status 2 with one exact line and nothing on standard output."""
    assert cli.main(["experiment", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"attnbook experiment: {message}\n"
