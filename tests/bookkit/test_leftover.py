"""Pages whose source is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bookkit.site_builder import build

PAGES = {
    "index": "(top)=\n# 題\n\n```{toctree}\n:glob:\n*\nsub/*\n```\n",
    "old": "(old)=\n# 旧\n\n比は900万\n",
    "sub/old": "(sub)=\n# 旧\n\n文\n",
}


CONFIG = {
    "html_extra_path": ["extra"],
    "extensions": ["myst_nb", "tests.bookkit.site_builder", "attnbook.bookkit.leftover"],
}


@pytest.fixture
def book(tmp_path) -> Path:
    """A book built once, with a file of the host's and one of the author's among its pages."""
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/given.html").write_text("given", encoding="utf-8")
    build(tmp_path, PAGES, **CONFIG)
    return tmp_path


def pages(folder: Path) -> set[str]:
    output = folder / "_build/html"
    return {
        path.relative_to(output).as_posix()
        for path in output.rglob("*.html")
        if not path.relative_to(output).parts[0].startswith("_")
    }


WITHOUT_SOURCE = {"genindex.html", "search.html", "given.html"}


def test_a_renamed_chapter_does_not_stay_under_its_old_name(book) -> None:
    """Nobody judges what it says any more."""
    assert pages(book) == {"index.html", "old.html", "sub/old.html"} | WITHOUT_SOURCE
    (book / "old.md").rename(book / "new.md")
    (book / "sub/old.md").unlink()
    build(book, {}, **CONFIG)
    assert pages(book) == {"index.html", "new.html"} | WITHOUT_SOURCE


def test_nor_where_the_build_remembers_nothing_of_it(book) -> None:
    """A build that starts afresh knows of no page that was removed."""
    (book / "old.md").unlink()
    (book / "_build/doctrees/environment.pickle").unlink()
    build(book, {}, **CONFIG)
    assert pages(book) == {"index.html", "sub/old.html"} | WITHOUT_SOURCE


def test_a_build_in_which_nothing_changed_takes_nothing_away(book) -> None:
    """Pages that were not written again stay."""
    build(book, {}, **CONFIG)
    assert pages(book) == {"index.html", "old.html", "sub/old.html"} | WITHOUT_SOURCE


def test_a_folder_elsewhere_is_left_alone(tmp_path) -> None:
    """Someone's folder may hold other things."""
    from sphinx.application import Sphinx

    from attnbook.bookkit import leftover

    output = tmp_path / "site"
    output.mkdir()
    (output / "mine.html").write_text("mine", encoding="utf-8")
    book = tmp_path / "book"
    book.mkdir()
    (book / "index.rst").write_text("Title\n=====\n", encoding="utf-8")
    app = Sphinx(book, None, output, tmp_path / "doctrees", "html", {"html_theme": "basic"}, None, None)
    leftover.setup(app)
    app.build()
    assert (output / "index.html").is_file()
    assert (output / "mine.html").is_file()
