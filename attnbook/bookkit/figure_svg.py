"""A matplotlib figure as SVG for the page: palette colours become CSS variables, ids become the figure's own.

matplotlib's SVG is written for a file. In a page it needs real text in the page's font, colours that follow the theme,
ids that no other figure has, and the same bytes at every build.
"""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any, Final

from attnbook.bookkit import palette

SVG: Final = "http://www.w3.org/2000/svg"
XLINK: Final = "{http://www.w3.org/1999/xlink}href"
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_LOCAL_URL = re.compile(r"url\(#([^)]+)\)")
_FONT_FAMILY = re.compile(r"font-family:\s*([^;]+);?\s*")


@dataclass(frozen=True)
class Drawing:
    """The inside of an `<svg>` element and the size of its user space (72 units an inch)."""

    body: str
    width: float
    height: float


def draw(name: str, figure: Any) -> Drawing:
    """Draw a matplotlib figure; `name` prefixes every id inside.

    Raises ValueError where the figure uses a colour outside the palette, naming the colours.
    """
    import matplotlib as mpl

    # The salt makes ids depend on content alone; text stays text; no date, no version: same figure, same bytes.
    settings: Any = {"svg.hashsalt": name, "svg.fonttype": "none", "image.composite_image": False}
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    _outline_formulas(figure)
    file = io.StringIO()
    with mpl.rc_context(settings):
        figure.savefig(file, format="svg", metadata=metadata, facecolor="none", edgecolor="none")
    root = ET.fromstring(file.getvalue())
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    foreign: set[str] = set()
    tints: set[str] = set()
    kept = _referenced(root)
    _drop_style_sheets(root)
    for element in list(root.iter()):
        _mend(element, name, kept, foreign, tints)
    if foreign:
        names = ", ".join(sorted(set(palette.NAMES.values())))
        raise ValueError(
            f"figure {name!r} uses {', '.join(sorted(foreign))}, which cannot follow the page's theme: take colours"
            f" from attnbook.bookkit.palette ({names}), or draw many colours as an image (imshow, rasterized=True)"
        )
    children = [child for child in root if not child.tag.endswith("metadata")]
    body = "".join(ET.tostring(child, encoding="unicode") for child in children)
    body = re.sub(r"<(/?)ns\d+:", r"<\1", body.replace(f' xmlns="{SVG}"', ""))
    body = re.sub(r' xmlns:ns\d+="[^"]*"', "", body)
    body = re.sub(r">\s+<", "><", body).replace("<defs></defs>", "").strip()
    return Drawing(_filters(name, tints) + body, width, height)


def _outline_formulas(figure: Any) -> None:
    """Formulas ($…$) are drawn as outlines: glyph by glyph as text they fall apart in any font but matplotlib's own."""
    from matplotlib import cbook, patheffects
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if cbook.is_math_text(text.get_text()):
            text.set_path_effects([patheffects.Normal()])


def _drop_style_sheets(root: ET.Element) -> None:
    """A `<style>` inside an inline SVG would style the whole page; the book's `plot.css` says the same of figures."""
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag == f"{{{SVG}}}style"]:
            parent.remove(child)


def _referenced(root: ET.Element) -> set[str]:
    """The ids that something in the drawing points at; the others only name matplotlib's own parts."""
    found = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == XLINK and value.startswith("#"):
                found.add(value[1:])
            found.update(_LOCAL_URL.findall(value))
    return found


def _mend(element: ET.Element, name: str, kept: set[str], foreign: set[str], tints: set[str]) -> None:
    """Turn one element of matplotlib's into one for the page, in place; note colours that are not the palette's."""
    attributes = element.attrib
    identity = attributes.pop("id", None)
    if identity in kept:
        attributes["id"] = f"{name}-{identity}"
    elif identity == "halo":
        attributes["class"] = "plot-halo"
    link = attributes.pop(XLINK, None)
    if link is not None:
        attributes["href"] = f"#{name}-{link[1:]}" if link.startswith("#") else "".join(link.split())
        if link.startswith("data:"):
            _tint(attributes, tints)
    for key, value in list(attributes.items()):
        if key in ("href", "id"):
            continue
        if key == "transform" and value.startswith("rotate(-0 "):
            del attributes[key]
            continue
        value = _LOCAL_URL.sub(lambda found: f"url(#{name}-{found[1]})", value)
        if key == "style":
            value = _FONT_FAMILY.sub(_font_family, value).strip()
            attributes.pop("style")
        attributes[key] = _COLOUR.sub(lambda found: _variable(found[0], foreign), value)
        if key in ("fill", "stroke") and attributes[key].startswith("var("):
            # A variable works in a style, not in a presentation attribute.
            attributes["style"] = f"{attributes.get('style', '')}; {key}: {attributes.pop(key)}".lstrip("; ")
    if attributes.get("style") == "":
        del attributes["style"]


def _font_family(found: re.Match[str]) -> str:
    # Only a fixed width means something; every other family gives way to the page's.
    return "font-family: monospace; " if "mono" in found[1].lower() else ""


def _variable(colour: str, foreign: set[str]) -> str:
    try:
        return palette.variable(colour.lower())
    except KeyError:
        foreign.add(colour.lower())
        return colour


def _tint(attributes: dict[str, str], tints: set[str]) -> None:
    """Give an image that is one palette colour at many opacities that colour from the page, by a filter."""
    import numpy as np
    from PIL import Image

    data = base64.b64decode(attributes["href"].split(",", 1)[1])
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA")).astype(float)
    shades, opacity = pixels[..., :3], pixels[..., 3:] / 255
    for colour in (*palette.CYCLE, palette.INK, palette.MUTED):
        wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        # Where a pixel is nearly transparent its colour is rounded coarsely, and does not show either.
        if opacity.any() and (np.abs(shades - wanted) * opacity <= 2).all():
            tints.add(colour)
            attributes["filter"] = f"url(#tint-{palette.NAMES[colour]})"  # prefixed below, as every id


def _filters(name: str, tints: set[str]) -> str:
    filters = (
        f'<filter id="{name}-tint-{palette.NAMES[colour]}" x="0" y="0" width="1" height="1"'
        ' color-interpolation-filters="sRGB">'
        f'<feFlood style="flood-color: {palette.variable(colour)}"/>'
        '<feComposite operator="in" in2="SourceAlpha"/></filter>'
        for colour in sorted(tints)
    )
    return f"<defs>{''.join(filters)}</defs>" if tints else ""
