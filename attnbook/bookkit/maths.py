r"""Formulas become MathML when the page is read: no script in the page, and a mistake in LaTeX is a located failure.

`math-core` writes MathML Core, which browsers draw with the system's maths font and screen readers read aloud; the
LaTeX stays in the page as an annotation, for whoever copies a formula. It knows no command that makes a link or loads
anything, so `\href` in a translation is an error like any unknown command.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.locale import _
from sphinx.transforms import SphinxTransform
from sphinx.util.math import get_node_equation_number

from attnbook.bookkit import problems

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


class MathsError(ValueError):
    """LaTeX that cannot be turned into MathML; the message says where in the formula and why."""


@lru_cache(maxsize=4096)
def mathml(latex: str, *, display: bool) -> str:
    """The MathML Core of a formula, inline or displayed, with the LaTeX as annotation.

    Raises MathsError, naming the place in the formula.
    """
    from math_core import LatexError, LatexToMathML

    if not latex.strip():
        raise MathsError("the formula is empty")
    converter = LatexToMathML(annotation=True, fancy_error=False)
    try:
        return str(converter.convert_with_local_state(latex, displaystyle=display))
    except LatexError as error:
        offset, _separator, reason = str(error).partition(": ")
        rest = latex[int(offset) :].strip() if offset.isdigit() else latex
        place = f"`{_short(rest, 20)}`" if rest else "its end"
        raise MathsError(f"formula `{_short(latex, 60)}`, at {place}: {reason}") from error


def _short(latex: str, length: int) -> str:
    """A piece of LaTeX on one line, cut where it is long."""
    line = " ".join(latex.split())
    return line if len(line) <= length else line[: length - 1] + "…"


class ConvertMaths(SphinxTransform):
    """Give every formula of a page its MathML, translations included, while its place in the source is known."""

    # After Locale (20), whose messages bring formulas; before `doctree-read` (880), where titles are copied.
    default_priority = 870

    def apply(self, **kwargs: Any) -> None:
        """See the class."""
        for node in [*self.document.findall(nodes.math), *self.document.findall(nodes.math_block)]:
            try:
                node["mathml"] = mathml(node.astext(), display=isinstance(node, nodes.math_block))
            except MathsError as error:
                problems.report(self.env, problems.line_of(node), "maths", str(error))


def _written(node: nodes.math | nodes.math_block) -> str:
    """The node's MathML; for a formula that failed, its escaped LaTeX, which the red build shows."""
    from html import escape

    return node.get("mathml") or f"<code>{escape(node.astext())}</code>"


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula."""
    translator.body.append(_written(node))
    raise nodes.SkipNode


def visit_display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula in a box of its own that scrolls, its number beside it."""
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate nohighlight"))
    translator.body.append(f'<div class="math-scroll">{_written(node)}</div>')
    if node.get("number"):
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, _("Link to this equation"))
        translator.body.append("</span>")
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Add the renderer (name `mathml`) and the transform that feeds it."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_display, None))
    app.add_transform(ConvertMaths)
    app.connect("config-inited", lambda _app, config: setattr(config, "html_math_renderer", "mathml"))
