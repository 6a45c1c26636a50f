"""Bold and italic beside East Asian text."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

from attnbook.bookkit.emphasis import COMMONMARK_SCAN, is_east_asian, scan_delimiters
from tests.bookkit.site_builder import build


@contextmanager
def scanning_with(scan):
    """For the time of the block; an earlier test may have built a site and left the changed scan."""
    before = StateInline.scanDelims
    StateInline.scanDelims = scan
    try:
        yield
    finally:
        StateInline.scanDelims = before


def commonmark():
    return scanning_with(COMMONMARK_SCAN)


@pytest.fixture
def markdown(monkeypatch):
    """markdown-it with the changed scan."""
    monkeypatch.setattr(StateInline, "scanDelims", scan_delimiters)
    return lambda text: MarkdownIt("commonmark").render(text).strip().removeprefix("<p>").removesuffix("</p>")


BOLD = [
    ("**「強調」**の", "<strong>「強調」</strong>の"),
    ("これは**「強調」**です", "これは<strong>「強調」</strong>です"),
    ("**注意(attention)**は", "<strong>注意(attention)</strong>は"),
    ("は**(注意)**が", "は<strong>(注意)</strong>が"),
    ("**어텐션(attention)**은", "<strong>어텐션(attention)</strong>은"),
    ("이것은 **“어텐션”**이다", "이것은 <strong>“어텐션”</strong>이다"),
    ("**`code`**を", "<strong><code>code</code></strong>を"),
    ("値は**−∞**です", "値は<strong>−∞</strong>です"),
    ("**重み。**次の文", "<strong>重み。</strong>次の文"),
    ("**ｱﾃﾝｼｮﾝ(半角)**は", "<strong>ｱﾃﾝｼｮﾝ(半角)</strong>は"),
    ("**（全角）**と*『斜体』*の", "<strong>（全角）</strong>と<em>『斜体』</em>の"),
    ("**A**と**B**と**(C)**", "<strong>A</strong>と<strong>B</strong>と<strong>(C)</strong>"),
]


@pytest.mark.parametrize(("text", "html"), BOLD)
def test_emphasis_needs_no_spaces_in_east_asian_text(markdown, text: str, html: str) -> None:
    """Brackets and quotation marks beside the asterisks do not stop it."""
    assert markdown(text) == html


def test_these_samples_fail_without_the_change() -> None:
    """What is tested above is the change: stock CommonMark leaves asterisks in most of them."""
    with commonmark():
        stock = [MarkdownIt("commonmark").render(text) for text, _ in BOLD]
    assert sum("**" in html for html in stock) >= 7


@pytest.mark.parametrize(
    "text", ["a ** b ** c", "2 * 3 * 4", "**強調 **の", "** 強調**の", "snake_case_の_名前", "\\*\\*語\\*\\*"]
)
def test_what_is_no_emphasis_stays_none(markdown, text: str) -> None:
    """Spaces inside, arithmetic, names with underscores, escapes."""
    assert "<strong>" not in markdown(text)
    assert "<em>" not in markdown(text)


@given(st.text(alphabet="ab .,()*_-\"'`\n", max_size=30))
def test_without_east_asian_text_nothing_changes(text: str) -> None:
    """For text of other scripts the result is CommonMark's to the letter."""
    with commonmark():
        stock = MarkdownIt("commonmark").render(text)
    with scanning_with(scan_delimiters):
        assert MarkdownIt("commonmark").render(text) == stock


@pytest.mark.parametrize("character", "字あアーｱ、。「」（）！㈱한ᄒ한")
def test_east_asian_characters(character: str) -> None:
    """Ideographs, kana, Hangul, their punctuation and full-width forms."""
    assert is_east_asian(character)


@pytest.mark.parametrize("character", "aé1(“”…—😀🎉 −αя")
def test_other_characters(character: str) -> None:
    """Latin, Greek, Cyrillic, ambiguous punctuation and emoji."""
    assert not is_east_asian(character)


def test_pages_and_translations_alike(tmp_path) -> None:
    """MyST makes a parser for each page and each message; the change reaches both."""
    page = "(top)=\n# Title\n\n**「強調」**の文。\n\n**注意(attention)**は。\n"
    assert "<strong>「強調」</strong>の文" in build(tmp_path / "ja", {"index": page}).html()
    catalog = Catalog(locale="ko")
    catalog.add("**注意(attention)**は。", "**어텐션(attention)**은.")
    folder = tmp_path / "ko/locales/ko/LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "index.mo").open("wb") as file:
        write_mo(file, catalog)
    assert "<strong>어텐션(attention)</strong>은." in build(tmp_path / "ko", {"index": page}, language="ko").html()
