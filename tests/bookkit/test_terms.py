"""The glossary's table: read strictly, shown as Sphinx's own glossary, and a mirror of what the book writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attnbook.bookkit.terms import LANGUAGES, Term, load, written
from tests.bookkit.site_builder import build

BOOK = Path(__file__).parents[2] / "book"
TERMS = load(BOOK / "glossary.csv")
HEAD = "group,ja,en,ko,avoid,definition\n"
TABLE = f"""{HEAD}basics,クエリ,query,쿼리,クエリー,キーと比べる。
basics,グループ化 / GQA,grouped queries (GQA),그룹 쿼리(GQA),,{{term}}`クエリ` を**まとめる**。
other,キー,key,키,,比べられる。
"""
PAGE = "(top)=\n# 題\n\n{term}`GQA` と {term}`クエリ`。\n\n```{terms} basics\n```\n"
EXTENSIONS = ["myst_nb", "tests.bookkit.site_builder", "attnbook.bookkit.terms"]


def page(folder: Path, table: str = TABLE, text: str = PAGE):
    """A book of one page, with this table."""
    (folder / "glossary.csv").write_text(table, encoding="utf-8")
    return build(folder, {"index": text}, extensions=EXTENSIONS)


def test_a_group_stands_in_its_order_with_all_names(tmp_path):
    """Every name can be linked to, by an anchor that its English name gives; the other languages are marked as such."""
    site = page(tmp_path)
    html = site.html()
    assert "term" not in site.warnings
    assert site.problems() == []
    found = re.findall(r'<dt id="([^"]+)">([^<]+)', html)
    expected = ["term-query", "term-grouped-queries-gqa", "term-grouped-queries-gqa-2"]
    assert found == list(zip(expected, ["クエリ", "グループ化", "GQA"], strict=True))
    assert html.count('class="reference internal" href="#term-query"') == 2  # from the text and from another definition
    assert 'href="#term-grouped-queries-gqa-2"' in html
    assert "<strong>まとめる</strong>" in html
    assert '<span lang="ko">한국어: 쿼리</span>' in html
    assert '<span lang="en">English: query</span>' in html
    assert "比べられる" not in html


def test_names_of_other_languages_are_not_translated(tmp_path):
    """Translators are given the terms and the definitions, not what is the same everywhere."""
    (tmp_path / "glossary.csv").write_text(TABLE, encoding="utf-8")
    build(tmp_path, {"index": PAGE}, extensions=EXTENSIONS, builder="gettext")
    catalogue = (tmp_path / "_build" / "gettext" / "index.pot").read_text("utf-8")
    assert 'msgid "クエリ"' in catalogue
    assert 'msgid "キーと比べる。"' in catalogue
    assert "쿼리" not in catalogue


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("a,b\n", "glossary.csv:1: expected the columns group,ja,en,ko,avoid,definition, got a,b"),
        (HEAD + "x,キー,key,키\n", "glossary.csv:2: expected 6 columns, got 4"),
        (HEAD + "x,キー,key,,,意味。\n", "glossary.csv:2: ko is empty"),
        (HEAD + "x,キー,key,키,,一。\nx,キー,keys,키들,,二。\n", "glossary.csv:3: 'キー' is a name of line 2 already"),
        (HEAD + "x,キー,key,키,,一。\n", "no group 'basics': expected one of x"),
    ],
)
def test_a_broken_table_is_a_failure_of_the_page(tmp_path, table, message):
    """With its line."""
    ((_, status, text),) = page(tmp_path, table, "(top)=\n# 題\n\n```{terms} basics\n```\n").problems()
    assert (status, text) == ("glossary", message)


def test_a_longer_word_is_another_one():
    """エンコーダ is not how the book writes it, and stands at the beginning of how it does."""
    assert written("エンコーダは", "エンコーダ")
    assert not written("エンコーダーは", "エンコーダ")
    assert written("エンコーダーとエンコーダ", "エンコーダ")


def prose(text: str) -> str:
    """A page without its code: blocks that a reader sees as they are typed."""
    kept, opened = [], ""
    for line in text.splitlines():
        fence = re.match(r"(```+|~~~+|:::+)(.*)", line)
        if opened and fence and fence[1].startswith(opened) and not fence[2]:
            opened = ""
        elif not opened and fence and (not fence[2].startswith("{") or fence[2].startswith("{code-cell}")):
            opened = fence[1] if fence[2] else ""  # a bare fence closes a directive, whose text is kept
        elif not opened:
            kept.append(line)
    return "\n".join(kept)


PROSE = {
    page.relative_to(BOOK).as_posix(): prose(page.read_text("utf-8"))
    for page in sorted(BOOK.rglob("*.md"))
    if "_build" not in page.parts
}
"""The pages without what only shows how something is typed."""


@pytest.mark.parametrize("term", TERMS, ids=[term.id for term in TERMS])
def test_the_book_uses_the_term_and_writes_it_so(term: Term):
    """Each of its names stands in a page beside the glossary, and none of the ways that the book does not write."""
    pages = {name: text for name, text in PROSE.items() if name != "appendix/glossary.md"}
    for name in term.names["ja"]:
        assert any(written(text, name) for text in pages.values()), f"no page uses {name}"
    for variant in term.avoid:
        assert [name for name, text in pages.items() if written(text, variant)] == [], (
            f"{variant}: {term.names['ja'][0]}"
        )


def test_every_group_is_shown_and_every_definition_is_one_of_the_books():
    """The page asks for each group once; a definition names its own term by no other word, and ends as a sentence."""
    shown = re.findall(r"^```\{terms\} (\w+)$", PROSE["appendix/glossary.md"], re.MULTILINE)
    assert shown == list(dict.fromkeys(term.group for term in TERMS))
    for term in TERMS:
        assert term.definition.endswith("。")
        assert set(term.names) == set(LANGUAGES)
        assert not [variant for other in TERMS for variant in other.avoid if written(term.definition, variant)]
    assert len({term.id for term in TERMS}) == len(TERMS)
