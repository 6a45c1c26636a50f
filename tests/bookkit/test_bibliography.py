"""The list of sources."""

from __future__ import annotations

import re
from pathlib import Path

from tests.bookkit.site_builder import build

SOURCES = """
@misc{one, author={Ada One}, title={First}, year={2001}}
@misc{two, author={Bo Two}, title={Second}, year={2002}}
"""
PAGE = "(top)=\n# 題\n\n{cite:t}`two` と {cite:t}`one` による。\n\n```{bibliography}\n```\n"


def test_sources_are_a_plain_list_without_numbers(tmp_path) -> None:
    """Found from the text by id; in the order of the authors."""
    (tmp_path / "sources.bib").write_text(SOURCES, "utf-8")
    html = build(
        tmp_path,
        {"index": PAGE},
        extensions=["myst_nb", "sphinxcontrib.bibtex", "tests.bookkit.site_builder"],
        bibtex_bibfiles=["sources.bib"],
        bibtex_default_style="plain",
        bibtex_reference_style="author_year",
    ).html()
    (sources,) = re.findall(r'<ul class="citation-list">.*?</ul>', html, re.DOTALL)
    entries = re.findall(r'<li class="citation" id="([^"]+)">\s*<p>(.*?)</p>', sources, re.DOTALL)
    assert [text.split(".")[0].replace("\xa0", " ") for _, text in entries] == ["Ada One", "Bo Two"]
    assert all(f'href="#{name}"' in html for name, _ in entries)
    assert "doc-biblioentry" not in html
    assert "fn-bracket" not in sources


BOOK = Path(__file__).parents[2] / "book"


def disagreements(sources: str, pages: str) -> tuple[set[str], set[str]]:
    """Entries that no page cites, and citations without an entry."""
    entries = set(re.findall(r"^@\w+\{\s*([^,\s]+)\s*,", sources, re.MULTILINE))
    cited = {key.strip() for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", pages) for key in keys.split(",")}
    return entries - cited, cited - entries


def test_every_source_is_cited_where_it_is_used() -> None:
    """And every citation has its source."""
    pages = "\n".join(page.read_text("utf-8") for page in BOOK.rglob("*.md") if "_build" not in page.parts)
    assert disagreements((BOOK / "references.bib").read_text("utf-8"), pages) == (set(), set())


def test_a_source_that_nobody_cites_is_found() -> None:
    """And a citation of nothing; several may stand in one role."""
    assert disagreements(SOURCES, "{cite:p}`one`") == ({"two"}, set())
    assert disagreements(SOURCES, "{cite:p}`one, two,three`") == (set(), {"three"})
