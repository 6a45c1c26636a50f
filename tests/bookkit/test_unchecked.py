"""Numbers in places that no claim reaches."""

from __future__ import annotations

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from tests.bookkit.site_builder import FRONT, build, figure_output

HEAD = "(top)=\n# 題\n\n"
CELL = "```{code-cell} ipython3\nshow()\n```\n\n"
OUTPUTS = {"show()": [figure_output("x")]}


@pytest.mark.parametrize(
    ("text", "line", "place"),
    [
        ("文。\n\n(two)=\n## 900万倍になる理由\n", 11, "a heading"),
        ("```{rubric} 900万倍\n```\n", 8, "a heading"),
        ("文。\n\n![比は900万](x.svg)\n", 10, "alternative text"),
        ("```{image} x.svg\n:alt: 比は900万\n```\n", 8, "alternative text"),
        ("```{figure} x.svg\n:alt: 比は900万\n\n説明\n```\n", 8, "alternative text"),
        (CELL + "```{plot} x\n:alt: 比は900万\n```\n", 12, "alternative text"),
        (CELL + "```{plot} x\n:title: 比は900万\n:alt: 比\n```\n", 12, "the title of a figure"),
        ("{abbr}`比 (900万)`\n", 8, "a tooltip"),
        ('[比](https://example.org "900万")\n', 8, "a tooltip"),
        ('<p title="比は900万">文</p>\n', 8, "an attribute of HTML"),
        ("文<img alt='比は900万' src='x.svg'>\n", 8, "an attribute of HTML"),
        ("```{toctree}\n:caption: 比は900万\nother\n```\n", 8, "a menu"),
        ("```{toctree}\n比は900万 <other>\n```\n", 8, "a menu"),
    ],
)
def test_a_number_that_no_claim_could_bear_out(tmp_path, text, line, place) -> None:
    """It is refused, where it stands."""
    pages = {"index": FRONT + HEAD + text, "other": HEAD.replace("top", "o")}
    (tmp_path / "x.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    ((found, status, message),) = build(tmp_path, pages, OUTPUTS).problems()
    assert (found, status) == (line, "lint")
    assert message == (
        f"{place} cannot hold a claim: leave the number 900 out, write it in words, or move it into the text"
    )


@pytest.mark.parametrize(
    "title", ["第2章のまとめ", "GPT-2 と float32", "2017年の論文", "三行で書く", "`d = 64` のとき", "√d で割る理由"]
)
def test_names_references_words_and_definitions_may_stand_there(tmp_path, title) -> None:
    """As in prose."""
    assert build(tmp_path, {"index": f"{HEAD}(two)=\n## {title}\n\n![{title}](x.svg)\n"}).problems() == []


def test_a_translation_is_looked_at_too(tmp_path) -> None:
    """What it added is found; what it left in the source's language is read in that."""
    catalog = Catalog(locale="ko")
    catalog.add("理由", "900만 배의 이유")
    folder = tmp_path / "locales/ko/LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "index.mo").open("wb") as file:
        write_mo(file, catalog)
    pages = {"index": f"{HEAD}(two)=\n## 理由\n\n(three)=\n## 第2章\n"}
    ((_, _, message),) = build(tmp_path, pages, language="ko").problems()
    assert message.startswith("a heading cannot hold a claim: leave the number 900 out")
