"""The colours of the book's figures, by name: what a chapter draws with, and what the page turns each into.

A figure is drawn once, in the colours below, and each of them leaves as a CSS variable (`var(--plot-blue)`), so that
the page decides what blue is in its light and in its dark theme (`_static/plot.css` of the book). That is why a figure
may use these colours only: any other would be the same in both themes and unreadable in one.
"""

from __future__ import annotations

from typing import Final

BLUE: Final = "#0072b2"
ORANGE: Final = "#c85200"
GREEN: Final = "#00805e"
PURPLE: Final = "#9b4f96"
RED: Final = "#b3243b"
GOLD: Final = "#8a6d00"
INK: Final = "#1f2328"
"""Text, axes, and whatever needs to stand out as text does."""
MUTED: Final = "#5f6670"
"""Lines for comparison, annotations of second rank."""
GRID: Final = "#d5d9df"
"""Grid lines; too faint for anything that carries meaning."""
PAPER: Final = "#ffffff"
"""The page's background: halos round text, rings round markers."""

CYCLE: Final = (BLUE, ORANGE, GREEN, PURPLE, RED, GOLD)
"""The order in which lines take their colours; told apart by the colour-blind, and in grey by their lightness."""

NAMES: Final = {
    BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple", RED: "red", GOLD: "gold",
    INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper",
    "#000000": "ink",  # what matplotlib draws when nobody chose
}  # fmt: skip


def variable(colour: str) -> str:
    """The CSS variable that stands for a colour of the palette: `var(--plot-blue, #0072b2)`.

    Raises KeyError for a colour that is not in the palette.
    """
    return f"var(--plot-{NAMES[colour]}, {colour})"
