"""The list of sources."""

from __future__ import annotations

import re

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
