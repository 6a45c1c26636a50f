"""matplotlib's SVG made fit for a page: colours, text, ids, images, bytes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from attnbook.bookkit import figure_svg, palette
from attnbook.bookkit.figures import heatmap, subplots, write


def lines():
    figure, axes = subplots()
    axes.plot([0, 1, 2], [3, 1, 2], label="first", marker="o")
    axes.plot([0, 1, 2], [1, 2, 2], color="black", label="second")
    axes.set_xlabel("distance")
    axes.legend()
    return figure


def test_palette_colours_become_variables() -> None:
    """No colour is fixed: each is a variable that the page's theme sets, black included."""
    body = figure_svg.draw("lines", lines()).body
    assert "stroke: var(--plot-blue, #0072b2)" in body
    assert re.search(r"stroke: var\(--plot-ink, #000000\)", body)
    outside = re.sub(r"var\(--plot-\w+, #[0-9a-f]{6}\)", "", body)
    assert not re.search(r"(fill|stroke): ?#", outside)


def test_text_is_text_in_the_font_of_the_page() -> None:
    """Labels stay text, without a font family of their own."""
    body = figure_svg.draw("lines", lines()).body
    assert re.search(r"<text [^>]*>distance</text>", body)
    assert "font-family" not in body


def test_it_is_well_formed_and_styles_nothing_but_itself() -> None:
    """The body parses inside an svg element; a style sheet in it would style the whole page."""
    body = figure_svg.draw("lines", lines()).body
    root = ET.fromstring(f"<svg>{body}</svg>")
    assert {element.tag for element in root.iter()} <= {"svg", "g", "path", "defs", "clipPath", "rect", "use", "text"}


def test_ids_are_the_figures_own() -> None:
    """Two figures in one page share no id, and every reference finds its target."""
    one, other = (figure_svg.draw(name, lines()).body for name in ("one", "other"))
    ids = [set(re.findall(r' id="([^"]+)"', body)) for body in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    targets = set(re.findall(r'(?:href="#|url\(#)([^")]+)', one))
    assert targets == ids[0]


def test_same_figure_same_bytes() -> None:
    """Nothing depends on when it was drawn."""
    assert figure_svg.draw("lines", lines()) == figure_svg.draw("lines", lines())


def test_a_colour_outside_the_palette_is_refused_by_name() -> None:
    """The error names figure, colour and what to take instead."""
    figure, axes = subplots()
    axes.plot([0, 1], [0, 1], color="red")
    with pytest.raises(ValueError, match=r"figure 'wrong' uses #ff0000, which cannot follow the page's theme.*orange"):
        figure_svg.draw("wrong", figure)


def test_formulas_are_outlines() -> None:
    """A formula's glyphs are placed for one font, so they are drawn; the words beside stay text."""
    figure, axes = subplots()
    axes.set_xlabel(r"$\sqrt{d}$")
    axes.set_ylabel("plain")
    body = figure_svg.draw("formula", figure).body
    assert ">plain</text>" in body
    assert "tspan" not in body
    assert "sqrt" not in re.sub(r"<!--.*?-->", "", body)


def test_a_heat_map_takes_the_themes_colour() -> None:
    """An image of one palette colour at many opacities is filled by a filter with that colour's variable."""
    figure, axes = subplots()
    heatmap(axes, np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]))
    body = figure_svg.draw("map", figure).body
    assert 'filter="url(#map-tint-blue)"' in body
    assert '<filter id="map-tint-blue"' in body
    assert "flood-color: var(--plot-blue" in body
    assert re.search(r'href="data:image/png;base64,[A-Za-z0-9+/=]+"', body)


def test_a_signed_heat_map_has_two_colours() -> None:
    """Negative values are another hue, tinted by its own variable."""
    figure, axes = subplots()
    heatmap(axes, np.array([[0.25, -0.75, 0.0]]))
    body = figure_svg.draw("map", figure).body
    assert set(re.findall(r'filter="url\(#map-tint-(\w+)\)"', body)) == {"blue", "orange"}


def test_many_points_as_an_image() -> None:
    """Rasterized points follow the theme like a heat map, although their edges are blended."""
    figure, axes = subplots()
    generator = np.random.default_rng(7)
    axes.scatter(*generator.normal(size=(2, 97)), alpha=0.4, color=palette.GREEN, rasterized=True)
    assert 'filter="url(#points-tint-green)"' in figure_svg.draw("points", figure).body


def test_an_image_in_many_colours_stays_as_it_is() -> None:
    """A colour map of many hues means its colours: no filter."""
    figure, axes = subplots()
    axes.imshow(np.arange(6).reshape(2, 3), cmap="viridis")
    body = figure_svg.draw("map", figure).body
    assert "<image" in body
    assert "filter" not in body


def test_text_over_an_image_has_a_halo() -> None:
    """The group around it carries the class that the style sheet gives a halo."""
    figure, axes = subplots()
    write(axes, 0.5, 0.5, "0.87")
    assert re.search(r'<g class="plot-halo">(<!--.*?-->)?<text', figure_svg.draw("halo", figure).body)
