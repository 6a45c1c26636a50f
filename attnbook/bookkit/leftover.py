"""Pages of an earlier build whose source is gone are taken away: a renamed chapter must not go on saying old numbers.

Sphinx leaves them in the output folder, where a host would serve them and search engines keep them, and no claim on
them is judged any more. Only below the book's own `_build` is anything removed: another folder may hold other things.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> None:
    """Sweep when the pages are written."""
    app.connect("builder-inited", _begin)
    app.connect("html-page-context", _remember)
    app.connect("build-finished", _sweep, priority=100)


class _Pages:
    """The pages without a source (search and the like) of the build at work; a process does one at a time."""

    written: ClassVar[set[str]] = set()


def _begin(app: Sphinx) -> None:
    _Pages.written = set()


def _remember(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    _Pages.written.add(name)


def _sweep(app: Sphinx, error: Exception | None) -> None:
    output = Path(app.outdir).resolve()
    own = Path(app.srcdir).resolve() / "_build"
    if error is not None or app.builder.format != "html" or own not in output.parents:
        return
    names = app.env.found_docs | _Pages.written
    expected = {Path(app.builder.get_outfilename(name)).resolve() for name in names}  # type: ignore[attr-defined]
    extra = [Path(app.confdir, folder) for folder in app.config.html_extra_path]
    for page in output.rglob("*.html"):
        below = page.relative_to(output)
        given = below.parts[0].startswith("_") or any((folder / below).exists() for folder in extra)
        if not given and page.resolve() not in expected:
            page.unlink()
