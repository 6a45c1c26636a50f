"""Starting a figure: sizes and heat maps."""

from __future__ import annotations

import numpy as np
import pytest

from attnbook.bookkit import palette
from attnbook.bookkit.figures import heatmap, subplots


def test_a_figure_grows_by_its_rows() -> None:
    """Panels under one another keep their height; the width stays what a phone can show."""
    figure, axes = subplots(3, 1)
    assert axes.shape == (3,)
    assert figure.get_size_inches() == pytest.approx([4.6, 8.4])


def test_lines_take_the_palettes_colours_in_order() -> None:
    """Nobody has to name a colour for the first lines of a figure."""
    _, axes = subplots()
    drawn = [axes.plot([0, 1])[0].get_color() for _ in range(6)]
    assert tuple(drawn) == palette.CYCLE


def test_a_heat_map_needs_a_matrix() -> None:
    """The error says how many axes came."""
    _, axes = subplots()
    with pytest.raises(ValueError, match=r"expected a matrix \(rows, columns\), got 3 axes of shape \(1, 2, 3\)"):
        heatmap(axes, np.zeros((1, 2, 3)))


def test_numbers_go_into_cells_and_nan_stays_empty() -> None:
    """Each value is written in the format asked for; a cell without a value has no text."""
    _, axes = subplots()
    heatmap(axes, [[0.126, np.nan, 1.0]], numbers=".2f", columns=["a", "b", "c"])
    assert [text.get_text() for text in axes.texts] == ["0.13", "1.00"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]


def test_a_map_of_zeros_is_empty() -> None:
    """Nothing to colour, nothing to divide by."""
    _, axes = subplots()
    heatmap(axes, np.zeros((2, 3)))
    assert axes.get_xlim() == (-0.5, 2.5)


def test_the_limit_is_the_full_colour() -> None:
    """Two maps with one limit can be compared."""
    _, axes = subplots()
    heatmap(axes, [[0.5]], limit=2.0)
    assert axes.images[0].get_clim() == (0, 2.0)
