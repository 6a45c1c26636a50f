"""A page's running text, block by block, as the checks on numbers read it.

A block (paragraph, caption, term, …) is one string, so that a number is seen with what stands around it across
emphasis and links. Whatever is no prose is a single placeholder in it: a claim, code, maths, a reference by label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from docutils import nodes
from sphinx import addnodes

from attnbook.claims.nodes import claim_node
from attnbook.claims.stated import without_latex

PLACEHOLDER = "\ufffc"
"""The object replacement character: neither letter nor digit, so it touches nothing."""
DOCSTRING = ":docstring of "
"""In the source of a node that comes from a docstring, as autodoc writes it: the text of code, not of the page."""
_BLOCKS = (
    nodes.paragraph, nodes.caption, nodes.title, nodes.term, nodes.classifier, nodes.attribution, nodes.line,
)  # fmt: skip
_NAME = re.compile(r"[^\W0-9_]")
_LAST_SIGNS = re.compile(r"[^\w()\[\]{}|]+$")
_SECTION_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)*\.?")


@dataclass(frozen=True)
class Block:
    """One block: its text with placeholders, where its claims are in it, and its code and formulas."""

    node: nodes.Element
    text: str
    claims: tuple[tuple[int, claim_node], ...] = ()
    code: tuple[tuple[int, str], ...] = ()
    """Inline code and formulas, as written, and where they are in the text."""

    def beside(self, start: int) -> tuple[str, str]:
        """The text before and after the claim at a place, with the signs of a formula next to it, such as `× 10^6`.

        A formula behind it that has a name in it is another quantity; so is what comes before the last name of one
        in front of it.
        """
        before, after = self.text[:start], self.text[start + 1 :]
        for position, code in self.code:
            plain = without_latex(code).strip()
            if position < start and not self.text[position + 1 : start].strip():
                signs = _LAST_SIGNS.search(plain)
                before = self.text[:position] + (signs[0] if signs else "") + self.text[position + 1 : start]
            elif position > start and not self.text[start + 1 : position].strip() and not _NAME.search(plain):
                after = self.text[start + 1 : position] + plain + self.text[position + 1 :]
        return before, after

    def around(self, start: int, end: int, width: int = 8) -> str:
        """The text near a place, up to the next placeholder: enough to find it again in the source."""
        before = self.text[max(0, start - width) : start].rpartition(PLACEHOLDER)[2]
        after = self.text[end : end + width].partition(PLACEHOLDER)[0]
        return f"{before}{self.text[start:end]}{after}".strip()


def blocks(document: nodes.document) -> Iterator[Block]:
    """Every block of prose of a page; headings, code cells with their outputs, and front matter are none.

    The caption that a cell's options give its output was written by a person, so it is one.
    """
    for node in document.findall(nodes.Element):
        if not _is_prose(node):
            continue
        if isinstance(node, nodes.math_block):
            yield Block(node, "", code=((0, node.astext()),))
        elif isinstance(node, nodes.raw):
            yield Block(node, _text_of_html(node.astext()))
        else:
            flat = _Flat()
            for child in node.children:
                flat.add(child)
            yield Block(node, flat.text, tuple(flat.claims), tuple(flat.code))


def _is_prose(node: nodes.Node) -> bool:
    if isinstance(node, nodes.raw):
        block = isinstance(node.parent, nodes.Structural | nodes.Body) and not isinstance(
            node.parent, nodes.TextElement
        )
        if not block or "html" not in node.get("format", "").split():
            return False
    elif isinstance(node, nodes.title):
        # A section's title holds no results (a role is refused there); a box's or a table's title is a caption.
        if isinstance(node.parent, nodes.section | nodes.document):
            return False
    elif not isinstance(node, (*_BLOCKS, nodes.math_block)):
        return False
    if DOCSTRING in (node.source or ""):
        return False
    around = _ancestors(node)
    if isinstance(node, nodes.caption):
        around = (parent for parent in around if "nb_element" not in parent)
    return not any(map(_is_no_prose, around))


def _is_no_prose(node: nodes.Element) -> bool:
    match node:
        case nodes.container():
            return "nb_element" in node  # a code cell, its source and its outputs: computed, not written
        case nodes.field_list():
            return isinstance(node.parent, nodes.document) and node.parent.children[0] is node
    return isinstance(node, nodes.docinfo | nodes.system_message | nodes.substitution_definition | nodes.citation)


def _ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


@dataclass
class _Flat:
    """A block's text while it is put together."""

    text: str = ""
    claims: list[tuple[int, claim_node]] = field(default_factory=list)
    code: list[tuple[int, str]] = field(default_factory=list)

    def add(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Text):
            self.text += str(node)
        elif isinstance(node, claim_node):
            self.claims.append((len(self.text), node))
            self.text += PLACEHOLDER
        elif isinstance(node, nodes.literal | nodes.math):
            self.code.append((len(self.text), node.astext()))
            self.text += PLACEHOLDER
        elif isinstance(node, nodes.raw):
            # A tag such as <b>, and the text between tags is text; but a role can hold both.
            self.text += _text_of_html(node.astext(), gap="") if "html" in node.get("format", "").split() else ""
        elif _is_label(node) or not isinstance(node, nodes.Element):
            self.text += PLACEHOLDER
        else:
            for child in node.children:
                self.add(child)


def _is_label(node: nodes.Node) -> bool:
    """A reference whose text is not the author's: by label, by number, to a footnote; or no text at all."""
    match node:
        case addnodes.pending_xref():
            return not node.get("refexplicit") or _SECTION_NUMBER.fullmatch(node.astext().strip()) is not None
        case nodes.reference():
            text, address = node.astext().strip(), str(node.get("refuri", "#"))
            if text in (address, address.removeprefix("mailto:")):
                return True
            return address.startswith("#") and _SECTION_NUMBER.fullmatch(text) is not None
    kinds = (
        nodes.footnote_reference, nodes.citation_reference, nodes.label, nodes.image, nodes.problematic,
        nodes.substitution_reference, addnodes.number_reference, addnodes.index, nodes.comment,
    )  # fmt: skip
    return isinstance(node, kinds)


class _Words(HTMLParser):
    """The text of HTML that a reader reads."""

    def __init__(self, gap: str) -> None:
        super().__init__()
        self.gap = gap
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "svg", "math")
        self.words.append(self.gap)

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "svg", "math") and self._hidden > 0
        self.words.append(self.gap)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)


def _text_of_html(html: str, gap: str = " ") -> str:
    """The words of HTML; `gap` stands for a tag, which parts words if it is a block's."""
    parser = _Words(gap)
    parser.feed(html)
    parser.close()
    return "".join(parser.words)
