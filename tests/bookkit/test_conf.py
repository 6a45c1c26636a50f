"""The book's configuration: what a page built with it holds, and what it never asks for."""

from __future__ import annotations

import re
import runpy
import shutil
import warnings
from collections import Counter
from pathlib import Path

import pytest

from tests.bookkit.site_builder import FRONT, build, figure_output

BOOK = Path(__file__).parents[2] / "book"
NAMES = ("_static", "_templates")
PAGE = FRONT + """
(one)=
# 一行で言うと

本文です。$x$ も {numref}`fig-one` も {numref}`table-one` もあります。

```{code-cell} ipython3
:tags: [hide-input]
make()
```

```{plot} one
:name: fig-one
:title: 題
:alt: 何が見えるか。
説明。
```

(one-next)=
## 節

$$
x = 1
$$ (eq-one)

```{table} 表の題
:name: table-one

| 名前 | 値 |
|---|---|
| x | y |
```

:::{admonition} 解答
:class: dropdown
本文。
:::
"""  # fmt: skip


def configuration() -> dict[str, object]:
    """The settings of book/conf.py, for a site in another folder."""
    settings = runpy.run_path(str(BOOK / "conf.py"))
    plain = (str, bool, int, list, dict, type(None))  # and neither modules nor functions
    kept = {
        key: value
        for key, value in settings.items()
        if isinstance(value, plain) and not key.startswith(("_", "claims_"))
    }
    kept["extensions"] = ["myst_nb", "sphinxcontrib.bibtex", "tests.bookkit.site_builder"]
    kept.pop("source_suffix")
    return kept


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two pages built with the book's configuration and theme."""
    folder = tmp_path_factory.mktemp("site")
    for name in NAMES:
        shutil.copytree(BOOK / name, folder / name)
    shutil.copy(BOOK / "references.bib", folder)
    index = "(front)=\n# 表紙\n\n本文。\n\n```{toctree}\none\n```\n"
    with warnings.catch_warnings():
        # The theme is written for older releases of Sphinx too, and says so by their names.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"(sphinx_book|pydata_sphinx)_theme")
        warnings.filterwarnings(
            "ignore", category=PendingDeprecationWarning, module=r"(sphinx_book|pydata_sphinx)_theme"
        )
        return build(folder, {"index": index, "one": PAGE}, {"make()": [figure_output("one")]}, **configuration())


def test_the_book_builds_without_a_word(site) -> None:
    """No warning, no problem: the configuration names nothing that does not exist."""
    assert [line for line in site.warnings.splitlines() if "lexer" not in line] == []
    assert site.problems("one") == site.problems("index") == []


@pytest.mark.parametrize("page", ["index", "one", "search"])
def test_a_page_requests_nothing_from_elsewhere(site, page: str) -> None:
    """Every script, style sheet, image and font comes from the folder that is published."""
    html = site.html(page)
    loaded = re.findall(r'<(?:script|img|iframe|source)\b[^>]* src="([^"]+)"', html)
    loaded += re.findall(r'<link\b[^>]* href="([^"]+)"', html)
    assert len(loaded) > 5
    assert [address for address in loaded if "//" in address] == []
    assert "import(" not in html


def test_style_sheets_request_nothing_from_elsewhere(site) -> None:
    """Fonts neither."""
    sheets = list((Path(site.app.outdir) / "_static").rglob("*.css"))
    assert {"book.css", "plot.css"} <= {sheet.name for sheet in sheets}
    remote = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")
    assert [sheet.name for sheet in sheets if remote.search(sheet.read_text("utf-8"))] == []


def test_language_title_and_the_way_past_the_menu(site) -> None:
    """For search engines, screen readers and keyboards."""
    html = site.html("one")
    assert '<html lang="ja"' in html
    assert "<title>一行で言うと &#8212; アテンションは加重平均だ</title>" in html
    assert '<meta name="description" content="本文です。' in html
    assert '<a href="#main-content">本文へスキップ</a>' in html
    assert '<main id="main-content"' in html


def test_ids_are_unique(site) -> None:
    """Links and labels lead to one place each."""
    ids = Counter(re.findall(r'\sid="([^"]+)"', site.html("one")))
    assert [name for name, count in ids.items() if count > 1] == []


def test_no_word_is_left_in_english(site) -> None:
    """Neither on the page nor in the names of its buttons; Ctrl is what the key says."""
    html = site.html("one")
    html = re.sub(r"<(script|style|math|svg|pre)\b.*?</\1>|<!--.*?-->", "", html, flags=re.DOTALL)
    texts = re.findall(r">([^<>]+)<", html) + re.findall(r'(?:title|aria-label|placeholder|alt)="([^"]+)"', html)
    assert {text.strip() for text in texts if re.search(r"[A-Za-z]{3}", text)} <= {"Ctrl"}


def test_a_button_is_called_what_is_written_on_it(site) -> None:
    """Who speaks to the computer says what is seen; the theme gives the search button a second name."""
    button = re.search(r'<button class="btn search-button-field.*?</button>', site.html("one"), re.DOTALL)
    assert button
    assert "検索" in button[0]
    assert "aria-label" not in button[0]
    assert "title=" not in button[0]


def test_the_title_in_the_sidebar_belongs_to_a_landmark(site) -> None:
    """A screen reader that goes from landmark to landmark passes it."""
    html = site.html("one")
    assert re.search(
        r'<nav aria-label="本の表紙">\s*<a class="navbar-brand logo" href="index.html">\s*<p [^>]*>アテンション', html
    )


def test_a_page_has_its_script_and_its_icon(site) -> None:
    """Both are there; without an icon of its own a browser asks for one that is not."""
    html = site.html("one")
    for name in ("book.js", "favicon.svg"):
        assert re.search(rf'(?:src|href)="_static/{name}', html)
        assert (Path(site.app.outdir) / "_static" / name).is_file()


def test_figures_tables_and_equations_are_numbered_in_japanese(site) -> None:
    """図 1 and 表 1, plain over the whole book."""
    html = site.html("one")
    assert '<span class="std std-numref">図 1</span>' in html
    assert '<span class="caption-number">表 1 </span>' in html
    assert '<span class="eqno">(1)' in html


def test_no_button_leads_nowhere(site) -> None:
    """No download, launch, repository or advertisement."""
    html = site.html("one")
    for word in ("ethical", "btn-download", "launch-button", "source-button", "fullscreen"):
        assert word not in html
    assert "canonical" not in html


def test_environment_sets_address_and_language(monkeypatch) -> None:
    """ATTNBOOK_BASE_URL gives canonical links; the language can be chosen without touching the file."""
    monkeypatch.setenv("ATTNBOOK_BASE_URL", "https://example.org/book/")
    monkeypatch.setenv("ATTNBOOK_LANGUAGE", "ko")
    settings = configuration()
    assert settings["html_baseurl"] == "https://example.org/book/"
    assert settings["language"] == "ko"
