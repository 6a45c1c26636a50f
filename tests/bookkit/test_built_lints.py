"""Lints of built pages."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from attnbook import bookkit
from attnbook.bookkit import built_lints
from tests.bookkit.site_builder import FRONT, build, figure_output

HEAD = "(top)=\n# 題\n\n"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg=="


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("これは ** 強調** です。", "a literal ** in the text"),
        ("値段は 5$ です。", "a literal $ in the text"),
        ("式 \\frac{a}{b} です。", "LaTeX outside a formula"),
        ("役割 {foo}`` です。", "a role or directive that stayed text"),
        ("| a |\n|---|\n| x ** y |", "a literal ** in the text"),
        (":::{note}\n注 ** です。\n:::", "a literal ** in the text"),
        ("文[^a]。\n\n[^a]: 脚注 ** です。", "a literal ** in the text"),
    ],
)
def test_markup_that_stayed_text(tmp_path, text: str, message: str) -> None:
    """It would be printed: found wherever text stands."""
    ((_, status, found),) = build(tmp_path, {"index": HEAD + text + "\n"}).problems()
    assert status == "lint"
    assert found.startswith(message)


def test_it_is_located_and_quoted(tmp_path) -> None:
    """The line, and a few characters by which to find it."""
    ((line, _, message),) = build(tmp_path, {"index": HEAD + "文。\n\nこれは ** 強調** です。\n"}).problems()
    assert line == 6
    assert message.endswith("if asterisks are meant: 'これは ** 強調** です。'")


@pytest.mark.parametrize(
    "text",
    [
        "`**kwargs` と `$x$` と `{claim}`",
        "```python\nf(**options)  # $\n```",
        "$a$ と $b$",
        "集合 {a} と {b, c}",
        "**強調**",
    ],
)
def test_what_is_meant_as_it_stands(tmp_path, text: str) -> None:
    """Code, formulas, braces of mathematics."""
    assert build(tmp_path, {"index": HEAD + text + "\n"}).problems() == []


def test_a_slip_in_a_translation(tmp_path) -> None:
    """The page is looked at after translation."""
    catalog = Catalog(locale="ko")
    catalog.add("これは**強調**です。", "이것은 ** 강조** 이다.")
    folder = tmp_path / "locales/ko/LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "index.mo").open("wb") as file:
        write_mo(file, catalog)
    ((line, _, message),) = build(tmp_path, {"index": HEAD + "これは**強調**です。\n"}, language="ko").problems()
    assert line == 4
    assert "이것은 ** 강조**" in message


def cell(*outputs):
    return {"index": f"{FRONT}\n{HEAD}```{{code-cell}} ipython3\nshow()\n```\n"}, {"show()": list(outputs)}


def test_an_output_without_alternative_text(tmp_path) -> None:
    """A plain image below a cell says nothing to who cannot see it: the message says what to do instead."""
    png = {"output_type": "display_data", "data": {"image/png": PIXEL}, "metadata": {}}
    ((line, _, message),) = build(tmp_path, *cell(png)).problems()
    assert line == 10
    assert message.startswith("output without alternative text: publish it with attnbook.bookkit.figures.figure")


def test_an_output_on_stderr(tmp_path) -> None:
    """A warning of a library does not belong in a book."""
    warning = {"output_type": "stream", "name": "stderr", "text": "UserWarning: old\n"}
    ((_, _, message),) = build(tmp_path, *cell(warning)).problems()
    assert message == "the cell wrote to stderr: 'UserWarning: old'"


def test_an_output_of_text_is_fine(tmp_path) -> None:
    """Printed text needs nothing."""
    text = {"output_type": "stream", "name": "stdout", "text": "max 0.87 ** $\n"}
    assert build(tmp_path, *cell(text)).problems() == []


def test_alternative_text_of_a_plot(tmp_path) -> None:
    """Markup there is read aloud as it stands."""
    page = f"{FRONT}\n{HEAD}```{{code-cell}} ipython3\nshow()\n```\n\n```{{plot}} x\n:alt: A **bold** curve.\n```\n"
    ((_, _, message),) = build(tmp_path, {"index": page}, {"show()": [figure_output("x")]}).problems()
    assert message.startswith(":alt: a literal ** in the text")


def test_a_formula_in_a_heading(tmp_path) -> None:
    """The name of a tab and a search result would show its LaTeX; characters such as √d do as well."""
    ((line, _, message),) = build(tmp_path, {"index": HEAD + "(why)=\n## なぜ $\\sqrt{d}$ か\n"}).problems()
    assert line == 5
    assert message.startswith("a formula in the heading 'なぜ")
    assert build(tmp_path / "b", {"index": HEAD + "(why)=\n## なぜ √d か\n"}).problems() == []


def test_other_lints_read_every_page_again(monkeypatch) -> None:
    """What the lints of an earlier version found on a page does not count."""
    seen = []
    monkeypatch.setattr(bookkit, "_PARTS", ())
    monkeypatch.setattr(zlib, "crc32", lambda code: seen.append(code) or 7)
    assert bookkit.setup(None)["env_version"] == 7
    assert Path(built_lints.__file__).read_bytes() in seen[0]
