"""The page at the root: it leads to the source language where that is there, without a script."""

from attnbook.bookkit import entrance
from tests.bookkit.small_book import write


def test_it_leads_to_the_source_language_if_that_was_ever_built(tmp_path):
    """Also when only another has just been built; else to that one. The page says which language it is in."""
    write(tmp_path, {"ko/index.html": ""})
    entrance.write(tmp_path, ["ko"])
    page = (tmp_path / "index.html").read_text()
    assert '<html lang="ko">' in page
    assert 'content="0; url=ko/index.html"' in page
    write(tmp_path, {"ja/index.html": ""})
    entrance.write(tmp_path, ["ko"])
    page = (tmp_path / "index.html").read_text()
    assert '<html lang="ja">' in page
    assert 'content="0; url=ja/index.html"' in page
    assert '<a href="ja/index.html">' in page
    assert "<script" not in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "ja", "ko"]


def test_an_unchanged_page_is_not_written_again(tmp_path):
    """A server that looks at times has nothing to send."""
    write(tmp_path, {"ja/index.html": ""})
    entrance.write(tmp_path, ["ja"])
    before = (tmp_path / "index.html").stat()
    entrance.write(tmp_path, ["ja"])
    assert (tmp_path / "index.html").stat().st_ino == before.st_ino


def test_without_a_book_there_is_nothing_to_lead_to(tmp_path):
    """No page then."""
    entrance.write(tmp_path, ["ja"])
    assert list(tmp_path.iterdir()) == []
