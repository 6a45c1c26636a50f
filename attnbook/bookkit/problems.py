"""How the book's parts report a located failure: into the one list that claims prints at the end of every build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from sphinx.environment import BuildEnvironment


class _Problems(Protocol):
    def problem(self, docname: str, line: int, status: str, message: str) -> None: ...


def report(env: BuildEnvironment, line: int | None, status: str, message: str, docname: str | None = None) -> None:
    """Record a failure of the page being read (or of `docname`); the build ends red and says it with file and line."""
    domain = cast("_Problems", env.get_domain("claims"))
    domain.problem(docname or env.current_document.docname, line or 1, status, message)
