"""`attnbook ledger`: printing, comparing, updating, exit status."""

import json
from dataclasses import replace

import pytest

from attnbook import cli
from attnbook.claims.entries import Accepts, Failure, Ledger, LedgerEntry

CRUST = LedgerEntry(
    "bread.crust", "claim", "0.95", 0.95, "", "measured", None, Accepts(0.945, 0.955, False, True, "0.945 to 0.955"),
    "fine", "", "book/crust.md", 3, "ja", number=0, docname="crust",
)  # fmt: skip
DRIFTED = replace(CRUST, value=0.87, verdict="drift", message="claim bread.crust says 0.95, measured 0.87")
RED = Ledger("ja", (DRIFTED,), (Failure("book/crust.md", 3, "drift", DRIFTED.message),))


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book whose one claim is fine, as the folder the command is called in."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "crust.md").write_text("# Crust\n\n割合は {claim}`0.95 <bread.crust>` です。\n")
    Ledger("ja", (CRUST,)).write(tmp_path / "book" / "_build" / "ledger.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def red(book):
    """The same book after its measurement has drifted."""
    RED.write(book / "book" / "_build" / "ledger.json")
    return book


def test_a_fine_ledger_is_printed_with_status_0(book, capsys):
    """The table of a green build."""
    assert cli.main(["ledger"]) == 0
    printed = capsys.readouterr().out
    assert "book/crust.md:3  bread.crust  0.95  0.95   0.945 to 0.955  measured  fine\n" in printed
    assert printed.endswith("\n1 judged, 0 unowned\n")


def test_a_red_ledger_is_printed_with_status_1(red, capsys):
    """The table of a red build, with its failures."""
    assert cli.main(["ledger"]) == 1
    assert "book/crust.md:3: claim bread.crust says 0.95, measured 0.87\n" in capsys.readouterr().out


def test_json_is_the_file(red, capsys):
    """`--json` prints what `ledger.json` holds."""
    assert cli.main(["ledger", "--json"]) == 1
    assert Ledger.from_json(json.loads(capsys.readouterr().out)) == RED


def test_file_names_another_ledger(book, tmp_path, capsys):
    """`--file` reads the ledger of another build."""
    RED.write(tmp_path / "other.json")
    assert cli.main(["ledger", "--file", str(tmp_path / "other.json")]) == 1


@pytest.mark.parametrize("folder", ["book", "book/deep/er"])
def test_the_ledger_is_found_from_any_folder_of_the_project(book, monkeypatch, capsys, folder):
    """It is looked for above, too."""
    (book / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(book / folder)
    assert cli.main(["ledger"]) == 0
    assert capsys.readouterr().out.endswith("\n1 judged, 0 unowned\n")


def test_no_ledger_is_status_2(tmp_path, monkeypatch, capsys):
    """Without a ledger the command says how to make one."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["ledger"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "attnbook ledger: there is no book/_build/ledger.json here or in a folder above: "
        "build the book first (nox -s build), or name another ledger with --file\n"
    )


def test_diff(red, capsys):
    """What moved is printed with status 1; nothing moved is status 0."""
    Ledger("ja", (CRUST,)).write(red / "old.json")
    new = "book/_build/ledger.json"
    assert cli.main(["ledger", "diff", "old.json", new]) == 1
    assert capsys.readouterr().out == (
        "value moved (1)\n  bread.crust: 0.95 -> 0.87 (-8.42%)\n\n"
        "verdict changed (1)\n  book/crust.md:3: bread.crust: fine -> drift\n"
    )
    assert cli.main(["ledger", "diff", new, new]) == 0
    assert capsys.readouterr().out == "nothing moved\n"
    assert cli.main(["ledger", "diff", "old.json", new, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["values"][0]["new"] == "0.87"


def test_diff_of_a_missing_ledger_is_status_2(book, capsys):
    """A ledger that is not there is named."""
    assert cli.main(["ledger", "diff", "old.json", "book/_build/ledger.json"]) == 2
    assert capsys.readouterr().err.startswith("attnbook ledger: there is no ledger at old.json")


def test_diff_of_two_languages_is_status_2(book, capsys):
    """Two languages are not compared."""
    Ledger("ko", (CRUST,)).write(book / "ko.json")
    assert cli.main(["ledger", "diff", "ko.json", "book/_build/ledger.json"]) == 2
    assert "hold different texts" in capsys.readouterr().err


def test_update_shows_a_diff_and_writes_nothing(red, capsys):
    """Without --write the source stays, and the status says that something is to be rewritten."""
    before = (red / "book" / "crust.md").read_text()
    assert cli.main(["ledger", "--update", "bread.crust"]) == 1
    assert capsys.readouterr().out == (
        "--- book/crust.md\n"
        "+++ book/crust.md\n"
        "@@ -1,3 +1,3 @@\n"
        " # Crust\n"
        " \n"
        "-割合は {claim}`0.95 <bread.crust>` です。\n"
        "+割合は {claim}`0.87 <bread.crust>` です。\n"
        "nothing is written yet: add --write\n"
    )
    assert (red / "book" / "crust.md").read_text() == before


def test_update_writes_when_told_to(red, capsys):
    """With --write the source is changed, and only the literal."""
    assert cli.main(["ledger", "--update", "bread.crust", "--write"]) == 0
    assert capsys.readouterr().out.endswith("\nwritten: book/crust.md; build again to check\n")
    assert (red / "book" / "crust.md").read_text() == "# Crust\n\n割合は {claim}`0.87 <bread.crust>` です。\n"


def test_update_from_a_folder_below(red, monkeypatch, capsys):
    """The project is found from any folder of it."""
    monkeypatch.chdir(red / "book")
    assert cli.main(["ledger", "--update", "bread.crust", "--write"]) == 0
    assert "0.87" in (red / "book" / "crust.md").read_text()


def test_update_as_json(red, capsys):
    """`--json` lists edits, refusals and translations."""
    assert cli.main(["ledger", "--update", "bread.crust", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "written": False,
        "edits": [{"id": "bread.crust", "place": "book/crust.md:3", "old": "0.95", "new": "0.87"}],
        "refused": [],
        "translations": [],
    }


def test_update_of_what_cannot_be_rewritten_is_status_1(book, capsys):
    """A refusal is printed with its reason; the source is not touched even with --write."""
    entry = replace(DRIFTED, text="半分", unit="ratio")
    Ledger("ja", (entry,)).write(book / "book" / "_build" / "ledger.json")
    assert cli.main(["ledger", "--update", "bread.crust", "--write"]) == 1
    assert capsys.readouterr().out.startswith(
        "not rewritten: book/crust.md:3: claim bread.crust says 半分: '半分' is written in words; could be 87% or "
    )


def test_update_of_what_is_fine_is_status_0(book, capsys):
    """Nothing to rewrite is said."""
    assert cli.main(["ledger", "--update", "bread.crust"]) == 0
    assert capsys.readouterr().out == "nothing to rewrite: every claim on these ids is fine\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--update", "bread.rye"], "no claim quotes bread.rye"),
        (["--write"], "--write needs --update and the ids to rewrite"),
    ],
)
def test_update_that_cannot_run_is_status_2(red, capsys, arguments, message):
    """An unknown id, or --write alone."""
    assert cli.main(["ledger", *arguments]) == 2
    assert capsys.readouterr().err == f"attnbook ledger: {message}\n"


def test_a_source_newer_than_the_ledger_is_status_2(red, capsys):
    """If the sentence is gone nothing is guessed."""
    (red / "book" / "crust.md").write_text("# Crust\n")
    assert cli.main(["ledger", "--update", "bread.crust", "--write"]) == 2
    assert "no longer says 0.95: build again" in capsys.readouterr().err
