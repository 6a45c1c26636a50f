"""`attnbook ledger`: every number the book quotes, what moved between two builds, and drifted numbers rewritten."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnbook.claims import ledger as ledgers
from attnbook.claims.entries import Ledger
from attnbook.cli import FINE, FOUND, CannotRun, print_json

if TYPE_CHECKING:
    from attnbook.claims.rewrite import Edit, Refusal, Source

USUAL_PLACE = Path("book", "_build", "ledger.json")
"""Where this book's builds leave the ledger; that of another project is named with --file."""


def main(arguments: Sequence[str]) -> int:
    """Print, compare or update. Exit status 1: a claim is not fine, something moved, something is to be rewritten."""
    try:
        if arguments and arguments[0] == "diff":
            return _diff(arguments[1:])
        return _ledger(arguments)
    except ledgers.NoLedger as error:
        raise CannotRun(str(error)) from error


def _ledger(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="attnbook ledger",
        description="Print every claim of the last build with its verdict. Exit status 1 if anything is not fine.",
        epilog="attnbook ledger diff OLD NEW compares two ledgers; see attnbook ledger diff --help.",
    )
    parser.add_argument("--file", type=Path, help=f"the ledger (default: {USUAL_PLACE.as_posix()}, here or above)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--update", nargs="+", metavar="ID",
        help="rewrite the numbers bound to these ids that are not fine, in the form in which they are written; "
        "shows a diff and changes nothing",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="with --update: do change the sources")
    options = parser.parse_args(arguments)
    if options.write and not options.update:
        raise CannotRun("--write needs --update and the ids to rewrite")
    path = options.file or find(Path.cwd())
    ledger = ledgers.load(path)
    if options.update:
        return _update(ledger, path, options.update, write=options.write, as_json=options.json)
    if options.json:
        print_json(ledger.as_json())
    else:
        print(ledgers.table(ledger))
    return FINE if ledgers.is_fine(ledger) else FOUND


def find(start: Path) -> Path:
    """The ledger of the book that a folder lies in: looked for in the folder and in those above it.

    Raises CannotRun, which says how to make one.
    """
    for folder in (start, *start.parents):
        if (folder / USUAL_PLACE).is_file():
            return folder / USUAL_PLACE
    raise CannotRun(
        f"there is no {USUAL_PLACE.as_posix()} here or in a folder above: build the book first "
        "(nox -s build), or name another ledger with --file"
    )


def _diff(arguments: Sequence[str]) -> int:
    from attnbook.claims import ledger_diff

    parser = argparse.ArgumentParser(
        prog="attnbook ledger diff",
        description="Say what moved between two builds. Exit status 1 if anything did.",
    )
    parser.add_argument("old", type=Path, help="the ledger.json of the earlier build")
    parser.add_argument("new", type=Path, help="the ledger.json of the later build")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        difference = ledger_diff.compare(ledgers.load(options.old), ledgers.load(options.new))
    except ValueError as error:
        raise CannotRun(str(error)) from error
    if options.json:
        print_json(difference.as_json())
    else:
        print(difference)
    return FOUND if difference else FINE


def _update(ledger: Ledger, path: Path, idents: Sequence[str], *, write: bool, as_json: bool) -> int:
    """Exit status 0: nothing is left to do; 1: something is to be rewritten, by --write or by hand."""
    from attnbook.claims import rewrite

    try:
        root = rewrite.find_root(ledger, path)
        edits, refusals = rewrite.plan(ledger, idents, root)
        sources = list(rewrite.apply(edits, root))
        outdated = _outdated(edits, root)
        if write:
            for source in sources:
                rewrite.write(source)
    except rewrite.CannotRewrite as error:
        raise CannotRun(str(error)) from error
    if as_json:
        _print_update_json(edits, refusals, outdated, write=write)
    else:
        _print_update(sources, refusals, outdated, write=write)
    return FOUND if refusals or (edits and not write) else FINE


def _outdated(edits: Sequence[Edit], root: Path) -> list[str]:
    from attnbook.claims import rewrite

    try:
        return list(rewrite.outdated(edits, root))
    except ModuleNotFoundError as error:
        print(f"attnbook ledger: translations were not looked at: that needs {error.name}", file=sys.stderr)
        return []


def _print_update(
    sources: Sequence[Source], refusals: Sequence[Refusal], outdated: Sequence[str], *, write: bool
) -> None:
    for source in sources:
        print(source.diff(), end="")
    for refusal in refusals:
        print(f"not rewritten: {refusal}")
    for line in outdated:
        print(f"now differs: {line}")
    if sources:
        names = ", ".join(source.name for source in sources)
        print(f"written: {names}; build again to check" if write else "nothing is written yet: add --write")
    elif not refusals:
        print("nothing to rewrite: every claim on these ids is fine")


def _print_update_json(
    edits: Sequence[Edit], refusals: Sequence[Refusal], outdated: Sequence[str], *, write: bool
) -> None:
    data = {
        "written": write and bool(edits),
        "edits": [{"id": e.entry.id, "place": e.entry.place, "old": e.entry.text, "new": e.new} for e in edits],
        "refused": [
            {"id": r.entry.id, "place": r.entry.place, "text": r.entry.text, "reason": r.reason} for r in refusals
        ],
        "translations": list(outdated),
    }
    print_json(data)
