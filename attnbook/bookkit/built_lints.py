"""Lints of what a page became: markup that stayed text, pictures that nobody can hear, outputs that nobody wanted.

They look at the finished doctree, after translation, so that a slip in a `.po` file is found too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from docutils import nodes
from sphinx import addnodes

from attnbook.bookkit import problems
from attnbook.bookkit.plots import plot

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Text in these is shown as it is written.
_VERBATIM: Final = (
    nodes.literal,
    nodes.literal_block,
    nodes.doctest_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.comment,
    addnodes.desc_signature,
    nodes.system_message,
)
# claims refuses its own roles where they stayed text, and says more about it.
_LEFTOVERS: Final = (
    (re.compile(r"\*\*"), "a literal ** in the text: emphasis that did not close, or \\*\\* if asterisks are meant"),
    (re.compile(r"\$"), "a literal $ in the text: a formula that did not close, or write the sign inside `code`"),
    (re.compile(r"\\(begin|end|frac|sqrt|text)\b"), "LaTeX outside a formula: put it between $ or $$"),
    (re.compile(r"\{(?!claim\}|holds\})[a-z][\w:.+-]*\}(?=`|$)"), "a role or directive that stayed text"),
    (re.compile(r"^(:::+|```+)", re.MULTILINE), "a fence that stayed text: its closing line is missing or too short"),
)


def check(doctree: nodes.Element) -> Iterator[tuple[int | None, str]]:
    """The findings of a finished page, as source line and message."""
    for text in doctree.findall(nodes.Text):
        if not _is_verbatim(text):
            for pattern, message in _LEFTOVERS:
                if found := pattern.search(text.astext()):
                    yield problems.line_of(text), f"{message}: {_around(text.astext(), found.start())}"
    for title in doctree.findall(nodes.title):
        if isinstance(title.parent, nodes.section) and next(iter(title.findall(nodes.math)), None) is not None:
            yield (
                problems.line_of(title),
                f"a formula in the heading {_around(title.astext(), 0)}: tabs, search results and feeds show headings "
                "as plain text, so write it in characters (√d)",
            )
    for image in doctree.findall(nodes.image):
        # Images that a person placed are the source lints' business.
        if _is_output(image) and not str(image.get("alt", "")).strip():
            yield (
                problems.line_of(image),
                "output without alternative text: publish it with attnbook.bookkit.figures.figure and place it with "
                "{plot}, whose :alt: says what it shows",
            )
    for node in doctree.findall(plot):
        for text_of in ("alt", "title"):
            for pattern, message in _LEFTOVERS:
                if found := pattern.search(node[text_of]):
                    yield problems.line_of(node), f":{text_of}: {message}: {_around(node[text_of], found.start())}"
    for block in doctree.findall(nodes.literal_block):
        if "stderr" in block["classes"]:
            yield problems.line_of(block), f"the cell wrote to stderr: {_around(block.astext(), 0)}"


def _is_output(node: nodes.Node | None) -> bool:
    while node is not None:
        if isinstance(node, nodes.container) and node.get("nb_element") in ("cell_code_output", "mime_bundle"):
            return True
        node = node.parent
    return False


def _is_verbatim(text: nodes.Text) -> bool:
    node = text.parent
    while node is not None:
        if isinstance(node, _VERBATIM):
            return True
        node = node.parent
    return False


def _around(text: str, place: int) -> str:
    """A few characters on both sides, to find the place by."""
    return repr(" ".join(text[max(place - 12, 0) : place + 20].split()))


def _report(app: Sphinx, doctree: nodes.document) -> None:
    for line, message in check(doctree):
        problems.report(app.env, line, "lint", message)


def setup(app: Sphinx) -> None:
    """Lint every page when it has been read."""
    app.connect("doctree-read", _report)
