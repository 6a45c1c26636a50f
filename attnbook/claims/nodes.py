"""The node that a claim is in the document tree: an inline run of text that knows what it is bound to."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes


class claim_node(nodes.inline):
    """A number or a statement in prose, bound to a measurement (named as docutils names nodes: writers dispatch on it).

    The written text is the child text and nothing else: attributes of a translated message can be overwritten by
    those of its source, the text cannot. Attributes, all plain strings or integers:

    - `role`: "claim" or "holds"; `ident`: the measurement's id, empty where the role is malformed;
    - `raw`: what stood between the backticks, spaces normalised, to find the role in the source again;
    - `malformed`: why the role cannot be read, empty where it can;
    - `number`: the claim's place among its page's claims, set once the page is read; with the page's name it is the
      key of `ClaimsDomain.entry`;
    - `po`, `po_line`: for a translated claim, the catalogue and line of its message.

    Every writer that does not know the class draws it as `inline`.
    """


def page_text(node: nodes.Element) -> str:
    """The written text of a claim, runs of white space (a line break in the source) as one space."""
    return " ".join(node.astext().split())


def line_of_node(node: nodes.Node) -> int:
    """The line of the block that a node is or stands in; 0 where the parser kept none."""
    parent: nodes.Node | None = node
    while parent is not None:
        if parent.line:
            return parent.line
        parent = parent.parent
    return 0


def file_of_node(node: nodes.Node, page: Path) -> Path:
    """The file that a node was written in: the page's own, or one that the page includes."""
    parent: nodes.Node | None = node
    while parent is not None:
        source = parent.source or ""
        if source and "<translated>" not in source:
            path = Path(source)
            return path if path != page and path.is_file() else page
        parent = parent.parent
    return page
