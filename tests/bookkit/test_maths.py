"""Formulas as MathML: what is written, and how a mistake is reported."""

from __future__ import annotations

import re

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from attnbook.bookkit.maths import MathsError, mathml
from tests.bookkit.site_builder import build

PAGE = (
    "(top)=\n# Title\n\nText $a < b$ here.\n\n$$\n\\frac{QK^\\top}{\\sqrt{d}}\n$$ (eq-scores)\n\nSee {eq}`eq-scores`.\n"
)


def test_a_formula_is_mathml_with_its_latex() -> None:
    """Elements for browser and screen reader, the LaTeX for whoever copies it, both escaped."""
    written = mathml("a < b", display=False)
    assert written.startswith("<math><semantics><mrow><mi>a</mi><mo>&lt;</mo><mi>b</mi></mrow>")
    assert '<annotation encoding="application/x-tex">a &lt; b</annotation>' in written


@pytest.mark.parametrize(
    "latex",
    [
        r"\operatorname{softmax}(x)_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}",
        r"\lVert x \rVert_2 \le |y|, \quad Q \in \mathbb{R}^{n \times d}",
        r"\begin{pmatrix} 1 & 0 \\ -\infty & 1 \end{pmatrix}",
        r"\begin{aligned} a &= b \\ &= c \end{aligned}",
        r"\begin{cases} 0 & j \le i \\ -\infty & j > i \end{cases}",
        r"\mathrm{Var}[q \cdot k] = d, \qquad \text{重み} \ge 0",
        r"\max_j s_j, \; \log \sum_j e^{s_j}, \; \underbrace{QK^\top}_{n \times n}",
    ],
)
def test_what_the_book_writes_is_understood(latex: str) -> None:
    """Every construction that the chapters use."""
    assert "<math" in mathml(latex, display=True)


@pytest.mark.parametrize(
    ("latex", "message"),
    [
        (r"\href{javascript:alert(1)}{x}", r'at `\href{javascript:al…`: Unknown command "\href"'),
        (r"\includegraphics{x}", "Unknown command"),
        (r"日本 + \oops", r"formula `日本 + \oops`, at `\oops`: Unknown command"),
        (r"e^{x", "at its end: Expected closing token"),
        (r"a & b", 'at `& b`: Found "&", which may only appear in a table-like environment'),
        (" ", "the formula is empty"),
    ],
)
def test_a_mistake_is_said_with_its_place_in_the_formula(latex: str, message: str) -> None:
    """Nothing that makes a link or loads anything is known; every error says where and why."""
    with pytest.raises(MathsError, match=re.escape(message)):
        mathml(latex, display=False)


def test_a_page_has_formulas_numbers_and_no_script(tmp_path) -> None:
    """Inline and displayed, the latter in a box of its own that scrolls, with number and anchor."""
    built = build(tmp_path, {"index": PAGE})
    html = built.html()
    assert built.problems() == []
    assert "Text <math><semantics>" in html
    assert re.search(r'id="equation-eq-scores">\s*<div class="math-scroll"><math display="block">', html)
    assert '<span class="eqno">(1)' in html
    assert '<a class="reference internal" href="#equation-eq-scores">(1)</a>' in html
    assert not re.search(r'src="[^"]*mathjax', html, re.IGNORECASE)


def test_a_mistake_in_a_page_is_located(tmp_path) -> None:
    """The build says the line, and goes on to the next mistake."""
    page = "(top)=\n# Title\n\nText $\\oops$.\n\n- item\n- $\\href{a}{b}$\n\n$$\n\\also\n$$\n"
    found = build(tmp_path, {"index": page}).problems()
    assert [(line, status) for line, status, _ in found] == [(4, "maths"), (7, "maths"), (9, "maths")]


def test_a_formula_in_a_heading_is_one_in_the_contents_too(tmp_path) -> None:
    """Titles are copied into navigation: the copy has its MathML."""
    pages = {"index": "(top)=\n# Top\n\n```{toctree}\nother\n```\n", "other": "(other)=\n# Why $\\sqrt{d}$\n"}
    assert "Why <math><semantics><msqrt>" in build(tmp_path, pages).html()


def test_a_translation_brings_its_own_formulas(tmp_path) -> None:
    """They are converted, and refused, like the source's."""
    catalog = Catalog(locale="ko")
    catalog.add("Text $a < b$ here.", "글 $c > d$ 과 $\\href{x}{y}$.")
    folder = tmp_path / "locales/ko/LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "index.mo").open("wb") as file:
        write_mo(file, catalog)
    built = build(tmp_path, {"index": PAGE}, language="ko")
    assert "<mi>c</mi><mo>&gt;</mo><mi>d</mi>" in built.html()
    ((_, status, message),) = built.problems()
    assert status == "maths"
    assert "Unknown command" in message
