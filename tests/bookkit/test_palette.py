"""The palette: what a chapter draws with is readable in the page, in both themes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attnbook.bookkit import palette

CSS = (Path(__file__).parents[2] / "book/_static/plot.css").read_text("utf-8")
PAGES = {"light": "#ffffff", "dark": "#121212"}
"""The theme's background, which `--plot-paper` takes over."""


def colours(selector: str) -> dict[str, str]:
    block = re.search(re.escape(selector) + r" \{\n(.*?)\n\}", CSS, re.DOTALL)
    assert block
    return dict(re.findall(r"--plot-(\w+): (#[0-9a-f]{6});", block[1]))


THEMES = {"light": colours("\nhtml"), "dark": colours('\nhtml[data-theme="dark"]')}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_is_the_known_one() -> None:
    """Black on white is 21:1, and the formula knows it."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", THEMES)
def test_every_name_has_a_colour_in_each_theme(theme: str) -> None:
    """A figure never falls back to the light colour in the dark theme."""
    assert set(THEMES[theme]) | {"paper"} == set(palette.NAMES.values())


@pytest.mark.parametrize("theme", THEMES)
def test_colours_stand_out_from_the_page(theme: str) -> None:
    """Lines, dots and text have a contrast of at least 4.5 with the page; a grid is allowed to be faint."""
    faint = {name for name, colour in THEMES[theme].items() if contrast(colour, PAGES[theme]) < 4.5}
    assert faint == {"grid"}


def test_light_theme_is_what_a_chapter_drew() -> None:
    """The light theme shows a figure in the colours it was drawn in."""
    drawn = {name: colour for colour, name in palette.NAMES.items() if colour != "#000000" and name != "paper"}
    assert THEMES["light"] == drawn


def test_print_is_light() -> None:
    """Paper is white, whatever theme the reader had on."""
    printed = re.search(r"@media print \{.*?\n\}\n", CSS, re.DOTALL)
    assert printed
    assert dict(re.findall(r"--plot-(\w+): (#[0-9a-f]{6});", printed[0])) == THEMES["light"] | {"paper": "#ffffff"}


def test_a_colour_outside_is_refused() -> None:
    """There is no variable for a colour that the palette does not have."""
    with pytest.raises(KeyError):
        palette.variable("#123456")
