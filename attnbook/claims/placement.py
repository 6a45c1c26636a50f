"""Where a claim may stand, and what a page prints raw.

A role belongs in running text: paragraphs, list items, table cells, captions, admonitions (their titles too),
footnotes, definitions, emphasis and links. In a heading it would be copied into menus, tabs and search results; in alt
text, maths, front matter and code it is lost or printed as it is written. Both are refused; so is what looks like a
role and is none, since its number would be on the page with nothing behind it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from docutils import nodes
from sphinx import addnodes

from attnbook.claims.nodes import claim_node
from attnbook.claims.roles import read_role
from attnbook.claims.sources import LITERAL, ROLES

SHOWN_AS_SOURCE = frozenset({"md", "markdown", "myst", "rst", "rest", "restructuredtext"})
"""Languages of code blocks that show how a page is written: only there may a role be printed."""
_UNBRACED = re.compile(rf"(?P<role>{'|'.join(ROLES)})[^\w\s]?$|｝$")
"""What stands directly before the backticks where a role has not its braces, or has full-width ones."""
_BOUND = re.compile(r"(?!#)\S.*\s<\w+(?:\.\w+)+>", re.DOTALL)  # but #include <a.h>
_UNKNOWN = re.compile(r"Unknown interpreted text role \W(?P<name>.+?)\W\.")
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOT_TEXT = frozenset(
    {"ids", "names", "dupnames", "classes", "backrefs", "refname", "refid", "refuri", "raw", "source", "rawsource"}
)


@dataclass(frozen=True)
class Printed:
    """A role that a page prints instead of running it."""

    node: nodes.Node
    text: str
    place: str
    allowed: bool = False


def forbidden_place(node: nodes.Element) -> str:
    """The name of the place if a claim may not stand where this node stands, else ""."""
    parent = node.parent
    while parent is not None:
        match parent:
            case nodes.title() if isinstance(parent.parent, nodes.section | nodes.document):
                return "a heading"
            case nodes.subtitle() | nodes.rubric():
                return "a heading"
            case nodes.term() if isinstance(parent.parent.parent.parent, addnodes.glossary):
                return "a glossary term"
            case nodes.docinfo():
                return "front matter"
            case nodes.field_list() if _opens_page(parent):
                return "front matter"
            case addnodes.desc_signature():
                return "a signature"
        parent = parent.parent
    return ""


def _opens_page(node: nodes.Element) -> bool:
    return isinstance(node.parent, nodes.document) and node.parent.children[0] is node


def printed_roles(document: nodes.document) -> Iterator[Printed]:
    """Every role, or piece of one, that stands in the text or in an attribute of a page as it was written."""
    for node in document.findall():
        if isinstance(node, nodes.Text):
            if LITERAL.search(node) and not _in_claim(node):
                place, allowed = _place_of_text(node)
                yield Printed(node, str(node), place, allowed)
        elif isinstance(node, nodes.Element) and not isinstance(node, claim_node):
            for name, value in node.attributes.items():
                if name not in _NOT_TEXT:
                    for text in _strings(value):
                        if LITERAL.search(text):
                            yield Printed(node, text, _place_of_attribute(node, name))


def unbraced_roles(document: nodes.document) -> Iterator[tuple[nodes.Element, str, str]]:
    """Code of the form `text <an.id>`: its node, its text, and the role it was meant to be, "" where that is unknown.

    Without `{claim}` before it Markdown takes the backticks for code, and reStructuredText for a title.
    """
    for node in document.findall(nodes.TextElement):
        if not isinstance(node, nodes.literal | nodes.title_reference):
            continue
        text = node.astext()
        place = node.parent.index(node)
        before = node.parent.children[place - 1].astext() if place else ""
        opening = _UNBRACED.search(before)
        malformed = read_role(text)[2]
        # With its braces, but parted from them by a space, it is refused as printed.
        printed = LITERAL.search(text) or LITERAL.search(before.rstrip()[-8:])
        if not printed and (_BOUND.fullmatch(text) or (opening and not malformed)):
            yield node, text, str(opening["role"] or "") if opening else ""


def unknown_roles(document: nodes.document) -> Iterator[tuple[nodes.Element, str, str]]:
    """Roles that nobody knows and that are nearly one of ours: the parser's note of it, their name, and ours.

    Markdown's parser drops the text of such a role.
    """
    for note in document.findall(nodes.system_message):
        match = _UNKNOWN.search(note.astext())
        near = difflib.get_close_matches(match["name"].lower(), ROLES, n=1) if match else []
        if match and near:
            yield note, match["name"], near[0]


def _in_claim(node: nodes.Node) -> bool:
    return isinstance(node.parent, claim_node)


def _place_of_text(node: nodes.Text) -> tuple[str, bool]:
    parent = node.parent
    while parent is not None:
        match parent:
            case nodes.comment():
                return "a comment", True
            case nodes.math() | nodes.math_block():
                return "maths", False
            case nodes.literal_block() | nodes.doctest_block():
                return "code", parent.get("language") in SHOWN_AS_SOURCE
            case nodes.docinfo():
                return "front matter", False
            case nodes.field_list() if _opens_page(parent):
                return "front matter", False
            case nodes.literal():
                inner = forbidden_place(parent)
                return inner or "inline code", False
            case nodes.raw():
                # A comment of HTML is in the page's file and not on the page.
                return "raw HTML", LITERAL.search(_HTML_COMMENT.sub("", node)) is None
            case nodes.entry() if LITERAL.search(node):
                return "a table cell", False
        parent = parent.parent
    return "text", False


def _place_of_attribute(node: nodes.Element, name: str) -> str:
    if name == "alt":
        return "alt text"
    if isinstance(node, addnodes.toctree):
        return "a toctree caption" if "caption" in name else "a toctree entry"
    if isinstance(node, nodes.meta):
        return "front matter"
    return f"the {name} of a {node.tagname}"


def _strings(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple) and depth < 3:
        for item in value:
            yield from _strings(item, depth + 1)
