"""How the list of sources looks in HTML: a plain list, in the order of the authors, without numbers.

The text cites by author and year, so the numbers that the bibliography gives its entries are named nowhere; and the
roles that docutils writes for citations are obsolete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def visit_citation(translator: HTML5Translator, node: nodes.citation) -> None:
    """Open an entry, and the list before the first one."""
    if not isinstance(_neighbour(node, -1), nodes.citation):
        translator.body.append('<ul class="citation-list">\n')
    for label in list(node.findall(nodes.label)):
        node.remove(label)
    translator.body.append(translator.starttag(node, "li", CLASS="citation"))


def depart_citation(translator: HTML5Translator, node: nodes.citation) -> None:
    """Close an entry, and the list after the last one."""
    translator.body.append("</li>\n")
    if not isinstance(_neighbour(node, 1), nodes.citation):
        translator.body.append("</ul>\n")


def _neighbour(node: nodes.Element, step: int) -> nodes.Node | None:
    """The node beside another, one step before (-1) or after (1) it."""
    siblings, place = node.parent.children, node.parent.index(node) + step
    return siblings[place] if 0 <= place < len(siblings) else None


def setup(app: Sphinx) -> None:
    """Write citations with the two functions."""
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
