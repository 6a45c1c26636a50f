"""Puts the results of executed chapters into their pages; Sphinx itself executes nothing.

A chapter without a result for what it says now is an error that names it, never a silent run and never an old number.
Sphinx judges by a page's own file whether to read it again; here a page is also read again when its result is another.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.errors import SphinxError
from sphinx.util.docutils import SphinxDirective

from attnbook.bookkit import chapter as chapter_
from attnbook.bookkit import problems
from attnbook.bookkit.chapter import Chapter
from attnbook.bookkit.store import Result, Store
from attnbook.bookkit.trace import Files

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from sphinx.application import Sphinx
    from sphinx.config import Config
    from sphinx.environment import BuildEnvironment


@dataclass(frozen=True)
class Execution:
    """How long what a page shows took when it ran."""

    seconds: float
    experiments: Sequence[tuple[str, float]]
    """Name and seconds of every experiment."""


class NotExecuted(SphinxError):
    """Chapters have no result for what they say now."""

    category = "Chapters not executed"


class _NestedCell(SphinxDirective):
    """What is left of code cells once those at the margin were taken out: those inside another block."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        problems.report(self.env, self.lineno, "lint", "a code cell inside another block never runs: put it outside")
        return []


class _Page:
    """What the page that is being read is made of; a process reads one at a time."""

    notebook: NotebookNode | None = None


def setup(app: Sphinx) -> None:
    """Read chapters with their stored results. `bookkit_results = False` leaves everything to MyST-NB."""
    app.add_config_value("bookkit_results", True, "env", bool)
    app.setup_extension("myst_nb")  # ours is to come after it
    app.add_directive("code-cell", _NestedCell, override=True)
    app.connect("config-inited", _start)
    app.connect("env-get-outdated", _outdated)
    app.connect("source-read", _fill, priority=900)  # after whoever changes the text
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)


def filled(text: str) -> NotebookNode:
    """MyST-NB's reader of a chapter: the notebook with its outputs, which `_fill` has just made."""
    assert _Page.notebook is not None
    return _Page.notebook


def _start(app: Sphinx, config: Config) -> None:
    if config.bookkit_results:
        config.nb_execution_mode = "off"


def _results(env: BuildEnvironment) -> dict[str, str]:
    """Of every chapter read, the digest of the result that its page shows."""
    digests: dict[str, str] = env.__dict__.setdefault("bookkit_digests", {})
    return digests


def executions(env: BuildEnvironment) -> dict[str, Execution]:
    """Of every chapter, how long the result took that this build found for it."""
    found: dict[str, Execution] = env.__dict__.setdefault("bookkit_executions", {})
    return found


def _outdated(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> Iterable[str]:
    """The pages that show another result than there is now. Raises NotExecuted with all chapters that have none."""
    if not app.config.bookkit_results:
        return []
    book = Path(app.srcdir)
    found, errors = chapter_.chapters(book)
    store, files = Store(book), Files(book)
    problems = [str(error) for error in errors]
    outdated = []
    taken = executions(env)
    taken.clear()
    for chapter in found:
        if chapter.name not in env.found_docs:
            continue
        result = store.find(chapter, files)
        if result is None:
            problems.append(f"{chapter.shown}:1: not executed since its code, or a file it depends on, changed")
            continue
        taken[chapter.name] = Execution(result.seconds, result.experiments)
        if _results(env).get(chapter.name) != result.digest:
            outdated.append(chapter.name)
    if problems:
        raise NotExecuted("\n".join([*problems, _advice(book)]))
    return outdated


def _advice(book: Path) -> str:
    return f"execute chapters first: python -m attnbook.bookkit execute {book.name}"


def _fill(app: Sphinx, docname: str, content: list[str]) -> None:
    """Have the page that comes next read by `filled` if it is a chapter, and as MyST-NB would if it is not."""
    if not app.config.bookkit_results:
        return
    book = Path(app.srcdir)
    path = Path(app.env.doc2path(docname))
    formats = dict(app.config.nb_custom_formats)
    chapter = None
    if path.suffix == ".md":
        chapter = chapter_.from_text(content[0], path, docname, f"{book.name}/{path.relative_to(book).as_posix()}")
    if chapter is not None:
        result = Store(book).find(chapter, Files(book))
        if result is None:
            raise NotExecuted(f"{chapter.shown}:1: its code changed while the book was built\n{_advice(book)}")
        _results(app.env)[docname] = result.digest
        _Page.notebook = _with_outputs(chapter, result)
        formats[".md"] = (f"{__name__}.filled", {}, False)
    settings: Any = app.env
    # MyST-NB's own place for notebooks and images is beside the output folder, among what a host is given.
    notebooks = str(app.doctreedir / "notebooks")
    settings.mystnb_config = settings.mystnb_config.copy(custom_formats=formats, output_folder=notebooks)


def _with_outputs(chapter: Chapter, result: Result) -> NotebookNode:
    notebook = copy.deepcopy(chapter.notebook)
    notebook.metadata["language_info"] = _node(result.language_info)
    for cell, kept in zip(chapter.cells, result.cells, strict=True):
        node = notebook.cells[cell.index]
        node["outputs"] = _node(kept["outputs"])
        node["execution_count"] = kept["count"]
    return notebook


def _node(data: Any) -> Any:
    from nbformat import from_dict

    return from_dict(data)  # type: ignore[no-untyped-call]


def _purge(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _results(env).pop(docname, None)


def _merge(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str], other: BuildEnvironment) -> None:
    for docname in docnames:
        if docname in _results(other):
            _results(env)[docname] = _results(other)[docname]
