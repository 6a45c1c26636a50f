"""The page of seconds and versions: read from what was stored, in the reader's order, and never executed for it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from attnbook.bookkit import chapter, store
from attnbook.bookkit.execution_page import BUILT_WITH, WORDS
from tests.bookkit.site_builder import FRONT, build

CODE = "```{code-cell} ipython3\npass\n```\n"
PAGES = {
    "index": "(top)=\n# 題\n\n```{execution}\n```\n\n```{toctree}\nzebra\napple\nplain\n```\n",
    "zebra": f"{FRONT}\n(zebra)=\n# しまうま\n\n{CODE}",
    "apple": f"{FRONT}\n(apple)=\n# りんご\n\n{CODE}",
    "plain": "(plain)=\n# 文章だけ\n\n本文。\n",
}
RAN = {"zebra": (12.34, [("attnbook.experiments.score_variance", 4.56)]), "apple": (1.0, [])}
EXTENSIONS = [
    "myst_nb", "tests.bookkit.site_builder", "attnbook.claims.ledger_page", "attnbook.bookkit.reader",
    "attnbook.bookkit.execution_page",
]  # fmt: skip


def execute(folder: Path, **ran: tuple[float, list[tuple[str, float]]]) -> None:
    """Store a result for each page, as if it had run that long."""
    for name, (seconds, experiments) in ran.items():
        (folder / f"{name}.md").write_text(PAGES[name], encoding="utf-8")
        read = chapter.read(folder / f"{name}.md", folder)
        assert read is not None
        cells = [{"outputs": [], "count": 1}]
        result = store.Result(name, store.key(read), {}, seconds, experiments, cells, {"name": "python"})
        store.Store(folder).save(result)


def rows(folder: Path, **options: object) -> list[list[str]]:
    """The cells of the page's tables, row by row."""
    text = build(folder, PAGES, extensions=EXTENSIONS, nb_custom_formats={}, **options).html()
    cells = (
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr.*?</tr>", text, re.DOTALL)
    )
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in row] for row in cells]


@pytest.mark.parametrize("language", ["ja", "ko", "en"])
def test_seconds_stand_in_the_order_of_the_contents(tmp_path, language):
    """Page, its experiments, and the sum; a page without code is none of them."""
    execute(tmp_path, **RAN)
    say = WORDS[language]
    found = rows(tmp_path, language=language)
    assert found[:5] == [
        [say["what"], say["seconds"]], ["しまうま", "12.3"], ["score_variance", "4.6"], ["りんご", "1.0"],
        [say["total"], "13.3"],
    ]  # fmt: skip


def test_versions_are_those_that_results_are_found_by(tmp_path):
    """And those of what draws the pages; none is left out where a package is missing."""
    execute(tmp_path, **RAN)
    found = rows(tmp_path)
    held = dict(found[6:])
    assert held["Python"] == store.versions()["python"]
    assert held["torch"] == store.versions()["torch"]
    assert set(held) == {"Python", *store.VERSIONS, *BUILT_WITH, WORDS["ja"]["machine"]}
    assert all(held.values())


def test_a_page_that_ran_again_shows_the_new_seconds(tmp_path):
    """Though its own text and what it printed stayed the same, so that nothing else would be read again."""
    execute(tmp_path, **RAN)
    assert ["りんご", "1.0"] in rows(tmp_path)
    (tmp_path / "_build" / "execution" / "apple").rename(tmp_path / "_build" / "older")
    execute(tmp_path, apple=(7.0, []))
    assert ["りんご", "7.0"] in rows(tmp_path)


def test_without_results_the_page_says_so(tmp_path):
    """Where MyST-NB reads the pages itself."""
    text = build(tmp_path, PAGES, extensions=EXTENSIONS, bookkit_results=False, nb_custom_formats={}).html()
    assert WORDS["ja"]["none"] in text
    assert "torch" in text


def test_seconds_are_nobodys_numbers(tmp_path):
    """They are filled in after everything was judged: the page as it was read holds no numeral."""
    execute(tmp_path, **RAN)
    site = build(tmp_path, PAGES, extensions=EXTENSIONS, nb_custom_formats={})
    assert not re.search(r"\d", site.doctree().astext())
    assert site.problems() == []
