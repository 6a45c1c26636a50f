"""Where a line of a page may not end: between a formula and the punctuation beside it, and inside a short name.

A browser takes an inline formula for a picture and breaks the line on either side of it, even before 、 or after （.
Japanese never does. And `d = 64` torn in two is hard to read, while a long name has to break where a phone is narrow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_NOT_AT_THE_END: Final = re.compile(r"[（「『【〈《［｛〔([{]+\Z")
_NOT_AT_THE_START: Final = re.compile(r"[、。，．・：；！？…‥ー）」』】〉》］｝〕,.:;!?)\]}]+")

SHORT: Final = 16
"""Characters of inline code that stay on one line: about half of a phone's, and `(b, h, t_q, d)` among them."""


class KeepTogether(SphinxPostTransform):
    """Wrap each formula with the punctuation that touches it, and mark short code; for HTML only."""

    default_priority = 310
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """See the class."""
        for formula in list(self.document.findall(nodes.math)):
            _join(formula)
        for code in self.document.findall(nodes.literal):
            if len(code.astext()) <= SHORT:
                code["classes"].append("short")


def _join(formula: nodes.math) -> None:
    """Move the punctuation beside a formula into a span with it."""
    place = formula.parent.index(formula)
    before, after = formula.parent.children[:place][-1:], formula.parent.children[place + 1 :][:1]
    opening = _taken(before, _NOT_AT_THE_END.search)
    closing = _taken(after, _NOT_AT_THE_START.match)
    if opening or closing:
        span = nodes.inline("", "", classes=["joined"])
        formula.replace_self(span)
        span += [nodes.Text(opening), formula, nodes.Text(closing)]


def _taken(neighbour: list[nodes.Node], find: Any) -> str:
    """What a pattern finds in a neighbouring text, which loses it; "" where the neighbour is no text."""
    if not neighbour or not isinstance(neighbour[0], nodes.Text):
        return ""
    text = neighbour[0].astext()
    if (found := find(text)) is None:
        return ""
    neighbour[0].parent.replace(neighbour[0], nodes.Text(text[: found.start()] + text[found.end() :]))
    return str(found[0])


def setup(app: Sphinx) -> None:
    """Add the transform."""
    app.add_post_transform(KeepTogether)
