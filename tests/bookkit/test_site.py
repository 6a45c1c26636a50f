"""What stands around a page's text."""

from __future__ import annotations

import re

import pytest
from docutils import nodes
from docutils.utils import new_document

from attnbook.bookkit.site import describe
from attnbook.bookkit.theme_words import WORDS
from tests.bookkit.site_builder import FRONT, build

PAGE = FRONT + """
(top)=
# 題

最初の段落は $x^2$ と<b>強調</b>です。

```{code-cell} ipython3
:tags: [hide-input]
show()
```
"""  # fmt: skip


def document(*texts: str) -> nodes.document:
    page = new_document("page")
    page += nodes.section("", *(nodes.paragraph("", text) for text in texts))
    return page


def test_a_description_is_the_first_paragraph() -> None:
    """Whole where it is short."""
    assert describe(document("アテンションは加重平均です。", "次の段落。")) == "アテンションは加重平均です。"


def test_a_long_paragraph_is_cut_at_a_sentence() -> None:
    """Or within one, with a sign that it goes on."""
    assert describe(document("短い文です。" + "長" * 200)) == "短い文です。"
    cut = describe(document("長" * 200))
    assert len(cut) == 120
    assert cut.endswith("…")


def test_a_page_without_paragraphs_has_none() -> None:
    """Nothing is invented."""
    assert describe(document()) == ""


def test_the_description_is_in_the_head(tmp_path) -> None:
    """Without formulas, and escaped."""
    html = build(tmp_path, {"index": PAGE}).html()
    assert '<meta name="description" content="最初の段落は と<b>強調</b>です。" />'.replace("<b>", "").replace(
        "</b>", ""
    ) in html.replace("&lt;b&gt;", "").replace("&lt;/b&gt;", "")


@pytest.mark.parametrize(("language", "prompt"), [("ja", "コード"), ("ko", "코드"), ("en", "Code")])
def test_folded_code_is_labelled_in_the_language_of_the_page(tmp_path, language: str, prompt: str) -> None:
    """And no hidden label in another language stands before what is seen."""
    html = build(tmp_path, {"index": PAGE}, language=language).html()
    assert f'<summary class="admonition-title">{prompt}</summary>' in html
    assert "Toggle hidden content" not in html


@pytest.mark.parametrize("language", WORDS)
def test_links_of_headings_are_named_in_the_language_of_the_page(tmp_path, language: str) -> None:
    """Sphinx's own catalogues leave these in English."""
    html = build(tmp_path, {"index": PAGE}, language=language).html()
    assert re.search(rf'title="{WORDS[language]["Link to this heading"]}"', html)
    assert "Link to this" not in html
