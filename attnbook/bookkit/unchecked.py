"""Numbers where no claim may stand, so that nobody could check them: headings, alternative text, tooltips, menus.

A role is refused there (it would be lost, or printed raw in tabs and search results), so a number would be on the page
with nothing behind it. Names, references and years may stand there as in prose; amounts are said in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from docutils import nodes
from sphinx import addnodes

from attnbook.bookkit import entrance, problems
from attnbook.bookkit.plots import plot
from attnbook.claims import unowned
from attnbook.claims.nodes import claim_node
from attnbook.claims.settings import spoken

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ATTRIBUTES: Final = {
    "alt": "alternative text",
    "title": "the title of a figure",
    "explanation": "a tooltip",
    "reftitle": "a tooltip",
}
_HTML_ATTRIBUTE: Final = re.compile(r"""\b(?:alt|title|aria-label)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)


def check(doctree: nodes.Element, languages: set[str]) -> Iterator[tuple[int | None, str]]:
    """The findings of a finished page, as source line and message.

    A numeral counts when it is one in each of the `languages`: a translation may leave a text as it was.
    """
    for node in doctree.findall(nodes.Element):
        for place, text in _texts(node):
            numerals = [{numeral.text for numeral in unowned.find(text, language)} for language in languages]
            for number in sorted(set.intersection(*numerals)):
                yield (
                    _line(node),
                    f"{place} cannot hold a claim: leave the number {number} out, write it in words, "
                    "or move it into the text",
                )


def _line(node: nodes.Element) -> int | None:
    """A picture or HTML that is a block of its own has a line of its own, though docutils counts it as inline."""
    return problems.line_of(node) if isinstance(node.parent, nodes.TextElement) else node.line


def _texts(node: nodes.Element) -> Iterator[tuple[str, str]]:
    """The texts that a node shows where no claim may stand, each with the name of its place."""
    match node:
        case nodes.title() if isinstance(node.parent, nodes.section | nodes.document):
            yield "a heading", _words(node)
        case nodes.rubric() | nodes.subtitle():
            yield "a heading", _words(node)
        case addnodes.toctree():
            yield "a menu", str(node.get("caption") or "")
            entries: list[tuple[str | None, str]] = node.get("entries", [])
            yield from (("a menu", title) for title, _ in entries if title)
        case nodes.raw():
            for match in _HTML_ATTRIBUTE.finditer(node.astext()):
                yield "an attribute of HTML", match[1] or match[2] or ""
        case nodes.abbreviation() if _in_signature(node):
            pass  # Sphinx explains * and / in a signature by the numbers of their PEPs
        case nodes.image() | plot() | nodes.abbreviation() | nodes.reference():
            for name, place in _ATTRIBUTES.items():
                yield place, str(node.get(name) or "")


def _in_signature(node: nodes.Node | None) -> bool:
    while node is not None and not isinstance(node, addnodes.desc_signature):
        node = node.parent
    return node is not None


def _words(node: nodes.Element) -> str:
    """The text of a heading without code and formulas, which define, and claims, which are refused themselves."""
    return "".join(
        "\ufffc" if isinstance(text.parent, nodes.literal | nodes.math | claim_node) else text.astext()
        for text in node.findall(nodes.Text)
    )


def _report(app: Sphinx, doctree: nodes.document) -> None:
    languages = {spoken(app.config.language), spoken(getattr(app.config, "claims_source_language", entrance.SOURCE))}
    for line, message in check(doctree, languages):
        problems.report(app.env, line, "lint", message)


def setup(app: Sphinx) -> None:
    """Lint every page when it has been read."""
    app.connect("doctree-read", _report)
