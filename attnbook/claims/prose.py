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

PLACEHOLDER = "\ufffc"
"""The object replacement character: neither letter nor digit, so it touches nothing."""
_BLOCKS = (
    nodes.paragraph, nodes.caption, nodes.title, nodes.term, nodes.classifier, nodes.attribution, nodes.line,
)  # fmt: skip
_SECTION_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)*\.?")


@dataclass(frozen=True)
class Block:
    """One block: its text with placeholders, where its claims are in it, and its code and formulas."""

    node: nodes.Element
    text: str
    claims: tuple[tuple[int, claim_node], ...] = ()
    code: tuple[str, ...] = ()
    """Inline code and formulas, as written."""

    def around(self, start: int, end: int, width: int = 8) -> str:
        """The text near a place, up to the next placeholder: enough to find it again in the source."""
        before = self.text[max(0, start - width) : start].rpartition(PLACEHOLDER)[2]
        after = self.text[end : end + width].partition(PLACEHOLDER)[0]
        return f"{before}{self.text[start:end]}{after}".strip()


def blocks(document: nodes.document) -> Iterator[Block]:
    """Every block of prose of a page; headings, code cells with their outputs, and front matter are none."""
    for node in document.findall(nodes.Element):
        if not _is_prose(node):
            continue
        if isinstance(node, nodes.math_block):
            yield Block(node, "", code=(node.astext(),))
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
    return not any(map(_is_no_prose, _ancestors(node)))


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
    code: list[str] = field(default_factory=list)

    def add(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Text):
            self.text += str(node)
        elif isinstance(node, claim_node):
            self.claims.append((len(self.text), node))
            self.text += PLACEHOLDER
        elif isinstance(node, nodes.literal | nodes.math):
            self.code.append(node.astext())
            self.text += PLACEHOLDER
        elif isinstance(node, nodes.raw):
            pass  # a tag such as <b>; the text between tags is text
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

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "svg", "math")
        self.words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "svg", "math") and self._hidden > 0
        self.words.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)


def _text_of_html(html: str) -> str:
    parser = _Words()
    parser.feed(html)
    parser.close()
    return "".join(parser.words)
