"""`{plot}`: placing the figures of a page."""

from __future__ import annotations

import re

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from tests.bookkit.site_builder import FRONT, build, figure_output

CELL = "```{code-cell} ipython3\nmake()\n```\n\n"


def page(text: str) -> str:
    return f"{FRONT}\n(top)=\n# Title\n\n{CELL}{text}"


PLACED = """```{plot} scores
:name: fig-scores
:title: Two <curves>
:alt: One curve is "wider".
Caption with $x$.

And a legend.
```
"""


def test_a_placed_figure_is_an_inline_svg_with_names(tmp_path) -> None:
    """Title and description name the drawing for a screen reader, escaped; the caption is numbered."""
    built = build(tmp_path, {"index": page(PLACED + "\n{numref}`fig-scores`")}, {"make()": [figure_output("scores")]})
    html = built.html()
    assert built.problems() == []
    assert '<title id="scores-title">Two &lt;curves&gt;</title>' in html
    assert '<desc id="scores-desc">One curve is &quot;wider&quot;.</desc>' in html
    svg = re.search(r"<svg [^>]*>", html)[0]
    assert 'role="img" aria-labelledby="scores-title" aria-describedby="scores-desc" viewBox="0 0 331.2 201.6"' in svg
    assert '<figure class="plot align-default" id="fig-scores">' in html
    assert '<div class="legend">' in html
    assert re.search(r'href="#fig-scores"><span class="std std-numref">図 1</span>', html)


def test_without_a_title_the_alternative_text_is_the_name(tmp_path) -> None:
    """A tool tip of several sentences would get in the way: there is no title element then."""
    built = build(tmp_path, {"index": page("```{plot} scores\n:alt: A curve.\n```")},
                  {"make()": [figure_output("scores")]})  # fmt: skip
    assert 'aria-label="A curve."' in built.html()
    assert "<desc" not in built.html()


def test_its_width_is_in_units_of_the_text(tmp_path) -> None:
    """331.2 units with text of 10 units drawn at 0.85 em make 28.15 em."""
    built = build(tmp_path, {"index": page(PLACED)}, {"make()": [figure_output("scores")]})
    assert 'style="--plot-width: 28.15"' in built.html()


def test_it_may_stand_before_the_cell_that_makes_it(tmp_path) -> None:
    """A picture first, its code after."""
    text = f"{FRONT}\n(top)=\n# Title\n\n{PLACED}\n{CELL}"
    built = build(tmp_path, {"index": text}, {"make()": [figure_output("scores")]})
    assert built.problems() == []
    assert "<svg" in built.html()


def test_nothing_shows_below_the_cell(tmp_path) -> None:
    """Not even an empty box."""
    built = build(tmp_path, {"index": page(PLACED)}, {"make()": [figure_output("scores")]})
    assert "cell_output" not in built.html()


def test_placed_but_not_made(tmp_path) -> None:
    """The failure names the figures that the page does make."""
    built = build(tmp_path, {"index": page(PLACED)}, {"make()": [figure_output("other")]})
    messages = {message for _, status, message in built.problems() if status == "figure"}
    assert messages == {
        "plot scores: no cell of this page makes that figure (made here: other)",
        "cell 1 makes the figure other, and no plot places it: add a {plot} other",
    }


def test_placed_twice(tmp_path) -> None:
    """Its ids would stand in the page twice."""
    again = PLACED.replace("fig-scores", "fig-again")
    built = build(tmp_path, {"index": page(PLACED + "\n" + again)}, {"make()": [figure_output("scores")]})
    ((line, status, message),) = built.problems()
    assert (line, status, message) == (22, "figure", "plot scores is placed twice, first in line 13")


def test_made_twice(tmp_path) -> None:
    """Nobody could say which of the two is meant."""
    text = page(f"```{{code-cell}} ipython3\nagain()\n```\n\n{PLACED}")
    outputs = {"make()": [figure_output("scores")], "again()": [figure_output("scores")]}
    ((_, status, message),) = build(tmp_path, {"index": text}, outputs).problems()
    assert (status, message) == ("figure", "figure scores is made twice, in cell 1 and in cell 2")


def test_title_and_alternative_text_are_translated(tmp_path) -> None:
    """Both are messages of the page's catalogue, and a translation of each reaches the drawing."""
    pages, outputs = {"index": page(PLACED)}, {"make()": [figure_output("scores")]}
    template = build(tmp_path / "pot", pages, outputs, builder="gettext")
    messages = (tmp_path / "pot/_build/gettext/index.pot").read_text("utf-8")
    assert 'msgid "Two <curves>"' in messages
    assert 'msgid "One curve is \\"wider\\"."' in messages
    assert "index.md:13" in messages
    assert template.problems() == []

    catalog = Catalog(locale="ko")
    catalog.add("Two <curves>", "두 곡선")
    catalog.add('One curve is "wider".', "한 곡선이 더 넓다.")
    folder = tmp_path / "ko/locales/ko/LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "index.mo").open("wb") as file:
        write_mo(file, catalog)
    html = build(tmp_path / "ko", pages, outputs, language="ko").html()
    assert '<title id="scores-title">두 곡선</title><desc id="scores-desc">한 곡선이 더 넓다.</desc>' in html


def test_plain_text_gets_the_alternative_text(tmp_path) -> None:
    """A format without pictures says what they show."""
    built = build(tmp_path, {"index": page(PLACED)}, {"make()": [figure_output("scores")]}, builder="text")
    assert '[One curve is "wider".]' in (tmp_path / "_build/text/index.txt").read_text("utf-8")
    assert built.problems() == []
