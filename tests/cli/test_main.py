"""The command `attnbook` itself: dispatch, exit status, lightness."""

import json
import os
import subprocess
import sys

import pytest

from attnbook import cli


def test_no_command_prints_usage_and_could_not_run(capsys):
    """`attnbook` alone says how it is used, on standard error, with exit status 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    assert stop.value.code == 2
    assert "usage: attnbook" in capsys.readouterr().err


def test_unknown_command_names_the_commands(capsys):
    """A misspelt command is answered with the commands that exist."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["leger"])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "'leger'" in message
    assert all(name in message for name in cli.COMMANDS)


def test_help_lists_every_command_with_what_it_does(capsys):
    """`attnbook --help` shows one line a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"  {name:<12}{what}" in printed for name, what in cli.COMMANDS.items())


def test_version(capsys):
    """`attnbook --version` prints the installed version."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("attnbook 0.")


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(name, capsys):
    """Each command answers --help itself."""
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert f"attnbook {name}" in capsys.readouterr().out


def test_only_the_command_that_is_called_is_imported():
    """Asking for the list of experiments loads neither the ledger command nor a heavy package."""
    program = (
        "import sys, json, io, contextlib; from attnbook.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): status = main(['experiment'])\n"
        "print(json.dumps([status, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    status, loaded = json.loads(done.stdout)
    assert status == 0
    assert "attnbook.cli.experiment" in loaded
    heavy = {"attnbook.cli.ledger", "torch", "numpy", "sphinx", "docutils", "matplotlib", "triton", "babel"}
    assert not heavy & set(loaded)


def test_closed_pipe_is_quiet():
    """`attnbook experiment | head -0` ends without a traceback."""
    command = f"set -o pipefail; {sys.executable} -m attnbook experiment --json | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_cannot_run_is_one_line_on_standard_error(monkeypatch, capsys):
    """A command that cannot run says why in one line, with its name, and exits with 2."""
    assert cli.main(["experiment", "no_such_experiment"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("attnbook experiment: there is no experiment 'no_such_experiment'; there are: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_standard_output_need_not_be_utf8(tmp_path, encoding):
    """What its encoding lacks is escaped, in tables and in messages; with --json it stays JSON."""
    claim = DRIFTED | {"text": "約3µ", "verdict": "fine", "document": "本.md"}
    data = {"version": 1, "language": "ja", "failures": [], "claims": [claim]}
    (tmp_path / "ledger.json").write_text(json.dumps(data))

    def attnbook(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "attnbook", *arguments],
            capture_output=True, cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": encoding},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    escaped = {"ascii": rb"\u7d043\xb5", "cp1252": b"\\u7d043\xb5", "utf-8": "約3µ".encode()}[encoding]
    status, printed, wrong = attnbook("ledger", "--file", "ledger.json")
    assert (status, wrong) == (0, b"")
    assert escaped in printed
    status, printed, _ = attnbook("ledger", "--file", "ledger.json", "--json")
    assert (status, json.loads(printed)["claims"][0]["text"]) == (0, "約3µ")
    assert attnbook("experiment")[::2] == (0, b"")
    status, _, wrong = attnbook("experiment", "実験")
    assert (status, wrong.count(b"\n")) == (2, 1)


DRIFTED = {
    "id": "a.b", "role": "claim", "text": "3", "value": 4, "unit": "", "kind": "measured", "spread": None,
    "accepts": {}, "verdict": "drift", "message": "", "document": "docs/a.md", "line": 1, "language": "en",
    "derived_from": [],
}  # fmt: skip


def update_without(names, folder):
    """`attnbook ledger --update` in an interpreter that lacks some modules, on a ledger of one drifted claim."""
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("{claim}`3 <a.b>`\n")
    ledger = {"version": 1, "language": "en", "failures": [], "claims": [DRIFTED]}
    (folder / "ledger.json").write_text(json.dumps(ledger))
    program = (
        f"import sys\nfor name in {names}: sys.modules[name] = None\n"
        "from attnbook.cli import main; sys.exit(main(['ledger', '--file', 'ledger.json', '--update', 'a.b']))"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)


def test_a_missing_package_is_one_line(tmp_path):
    """What a command needs and does not find is named, without a traceback."""
    done = update_without(("difflib",), tmp_path)
    assert done.returncode == 2
    assert done.stderr == "attnbook ledger: this needs difflib, which is not installed\n"


def test_numbers_are_rewritten_where_no_sphinx_is_installed(tmp_path):
    """The ledger's command needs neither Sphinx nor docutils: the base installation has it."""
    done = update_without(("sphinx", "docutils", "babel"), tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "+{claim}`4 <a.b>`\n" in done.stdout
