"""`{plot}`: places a figure that a cell of the same page made, with caption, title and alternative text.

    ```{plot} scaling-scores
    :name: fig-scaling-scores
    :title: Scores before and after the division
    :alt: Two histograms over one axis; the scaled one is eight times narrower.
    The caption, which may hold claims.
    ```

The figure stands in the page as inline SVG, so that it takes the page's theme and text size. Its title and alternative
text are messages for translation; the drawing is the same in every language.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

from attnbook.bookkit import problems
from attnbook.bookkit.figure_style import TEXT_EM, TEXT_UNITS

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


class plot(nodes.General, nodes.Element, addnodes.translatable):
    """The drawing of a figure. Attributes: plot (its name), svg, width, height, alt, title (possibly empty)."""

    def preserve_original_messages(self) -> None:
        """Keep the source's texts: a translation replaces `alt` and `title`."""
        self["source_texts"] = self._texts()

    def extract_original_messages(self) -> Sequence[str]:
        """The messages for translation."""
        return list(self._source_texts().values())

    def apply_translated_message(self, original_message: str, translated_message: str) -> None:
        """Put a translation in the place of every text that reads like its original."""
        for key, text in self._source_texts().items():
            if text == original_message:
                self[key] = translated_message

    def _texts(self) -> dict[str, str]:
        return {key: self[key] for key in ("title", "alt") if self[key]}

    def _source_texts(self) -> dict[str, str]:
        kept: dict[str, str] = self.get("source_texts", self._texts())
        return kept


class Plot(SphinxDirective):
    """The `{plot}` directive; see the module."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "name": directives.unchanged, "alt": directives.unchanged, "title": directives.unchanged,
        "class": directives.class_option,
    }  # fmt: skip

    def run(self) -> list[nodes.Node]:
        """A figure node. That it has alternative text is for the lints to say (`attnbook.bookkit.lints`)."""
        name = self.arguments[0]
        alt = " ".join(self.options.get("alt", "").split())
        title = " ".join(self.options.get("title", "").split())
        drawing = plot("", plot=name, alt=alt, title=title)
        frame = nodes.figure("", drawing, classes=["plot", *self.options.get("class", [])])
        for node in (drawing, frame):
            self.set_source_info(node)
        self.add_name(frame)
        if self.content:
            content = nodes.Element()
            self.state.nested_parse(self.content, self.content_offset, content)
            first, *rest = content.children
            if isinstance(first, nodes.paragraph):
                caption = nodes.caption(first.rawsource, "", *first.children)
                caption.source, caption.line = first.source, first.line
                frame += caption
            else:
                rest = [first, *rest]
            if rest:
                frame += nodes.legend("", *rest)
        return [frame]


class PlacePlots(SphinxTransform):
    """Give every placed plot its drawing; a figure placed but not made, or made but not placed, is a failure."""

    default_priority = 12

    def apply(self, **kwargs: Any) -> None:
        """See the class."""
        made: dict[str, tuple[dict[str, Any], int, int]] = {}
        for payload, line, cell in self.document.attributes.pop("attnbook_figures", []):
            name = payload["name"]
            if name in made:
                self._problem(line, f"figure {name} is made twice, in cell {made[name][2]} and in cell {cell}")
            made[name] = (payload, line, cell)
        placed: dict[str, plot] = {}
        for node in self.document.findall(plot):
            name = node["plot"]
            if name in placed:
                self._problem(node.line, f"plot {name} is placed twice, first in line {placed[name].line}")
            elif name not in made:
                known = ", ".join(sorted(made)) or "none"
                self._problem(node.line, f"plot {name}: no cell of this page makes that figure (made here: {known})")
            else:
                node.attributes.update({key: made[name][0][key] for key in ("svg", "width", "height")})
            placed.setdefault(name, node)
        for name in sorted(set(made) - set(placed)):
            _, line, cell = made[name]
            self._problem(line, f"cell {cell} makes the figure {name}, and no plot places it: add a {{plot}} {name}")

    def _problem(self, line: int | None, message: str) -> None:
        problems.report(self.env, line, "figure", message)


def svg(node: plot) -> str:
    """The plot as an inline SVG element, its width in units of the page's text size."""
    name, alt, title = node["plot"], escape(node["alt"]), escape(node["title"])
    width, height = node["width"], node["height"]
    if title:
        naming = f'aria-labelledby="{name}-title" aria-describedby="{name}-desc"'
        texts = f'<title id="{name}-title">{title}</title><desc id="{name}-desc">{alt}</desc>'
    else:
        naming, texts = f'aria-label="{alt}"', ""
    return (
        f'<svg class="plot-svg" role="img" {naming} viewBox="0 0 {width:g} {height:g}"'
        f' style="--plot-width: {width / TEXT_UNITS * TEXT_EM:.4g}">{texts}{node["svg"]}</svg>'
    )


def visit_html(translator: HTML5Translator, node: plot) -> None:
    """Write the SVG in a frame that scrolls where the column is too narrow for readable text."""
    if "svg" in node:
        translator.body.append(f'<div class="plot-frame">{svg(node)}</div>\n')
    raise nodes.SkipNode


def visit_text(translator: Any, node: plot) -> None:
    """In plain text the alternative text stands for the drawing."""
    translator.new_state()
    translator.add_text(f"[{node['alt']}]")
    translator.end_state()
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Add the directive, its node and its transform."""
    app.add_node(plot, html=(visit_html, None), text=(visit_text, None))
    app.add_directive("plot", Plot)
    app.add_transform(PlacePlots)
