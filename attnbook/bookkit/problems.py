"""How the book's parts report a located failure: into the one list that claims prints at the end of every build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.environment import BuildEnvironment


class _Problems(Protocol):
    def problem(self, docname: str, line: int, status: str, message: str) -> None: ...


def report(env: BuildEnvironment, line: int | None, status: str, message: str, docname: str | None = None) -> None:
    """Record a failure of the page being read (or of `docname`); the build ends red and says it with file and line."""
    domain = cast("_Problems", env.get_domain("claims"))
    domain.problem(docname or env.current_document.docname, line or 1, status, message)


def line_of(node: nodes.Node | None) -> int | None:
    """The source line of the block that a node stands in.

    Not the node's own: what a translation brought counts lines within its message, and only its block is the source's.
    """
    while node is not None and (isinstance(node, nodes.Text | nodes.Inline) or not node.line):
        node = node.parent
    return node.line if node is not None else None
