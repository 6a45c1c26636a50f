"""Sphinx's warnings: named from the project on, and counted at the end of a strict build, each time again."""

import io
import logging
from pathlib import Path

import pytest

from attnbook.bookkit.warned import Warnings, shortened
from attnbook.claims import gate
from tests.bookkit.small_book import PAGES, run, write

PROJECT = Path("/home/me/book of mine")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("/home/me/book of mine/book/a.md:3: WARNING: x", "book/a.md:3: WARNING: x"),
        ("\x1b[91m/home/me/book of mine/book/a.md:3: x\x1b[0m", "\x1b[91mbook/a.md:3: x\x1b[0m"),
        ("see '/home/me/book of mine/a' and\n/home/me/book of mine/b", "see 'a' and\nb"),
        ("/srv/home/me/book of mine/a.md", "/srv/home/me/book of mine/a.md"),
        ("/home/me/book of mine, too/a.md", "/home/me/book of mine, too/a.md"),
    ],
)
def test_paths_below_the_project_are_said_from_there_on(text, short):
    """Coloured or not; a longer path that only looks alike stays."""
    assert shortened(text, PROJECT) == short
    assert shortened(text, Path("/")) == text


def test_what_the_gate_says_is_not_counted_as_sphinx_s():
    """It counts its own failures."""
    stream = io.StringIO()
    warnings = Warnings(stream, PROJECT)
    assert warnings.summary == ""
    gate.LOGGER.logger.handle(logging.LogRecord("gate", logging.ERROR, "", 1, "claims that fail", (), None))
    warnings.write("ERROR: claims that fail\n")
    assert warnings.summary == ""
    warnings.write("/home/me/book of mine/book/a.md:3: WARNING: x\n")
    assert warnings.summary == "1 warning of Sphinx fails this build, see above"
    warnings.write("WARNING: y\n")
    assert warnings.summary == "2 warnings of Sphinx fail this build, see above"
    assert stream.getvalue().splitlines()[1] == "book/a.md:3: WARNING: x"
    gate.LOGGER.logger.removeFilter(warnings._count_gates)


def test_a_strict_build_with_warnings_is_red_and_counts_them_on_every_run(tmp_path):
    """With the page and line of each; one that isn't strict shows them, and stays green."""
    text = "# Plain\n\n{ref}`nowhere` and\n{doc}`nothing`.\n"
    pages = {name: text for name, text in PAGES.items() if not name.startswith("0")}
    book = write(tmp_path / "book", pages | {"plain.md": text})
    for _ in range(2):
        status, _, err = run("build", book, "--strict")
        assert status == 1
        *warnings, last = err.splitlines()
        label, document = sorted(warnings)
        assert label.startswith("book/plain.md:3: WARNING: undefined label: 'nowhere'")
        assert document.startswith("book/plain.md:3: WARNING: unknown document: 'nothing'")
        assert last == "2 warnings of Sphinx fail this build, see above"
        assert str(tmp_path) not in err
    (book / "plain.md").write_text(text + "\n")
    status, _, err = run("build", book)
    assert (status, "WARNING" in err, "fail this build" in err) == (0, True, False)
