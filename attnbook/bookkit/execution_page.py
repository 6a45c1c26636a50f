"""`{execution}`: how long each page and each experiment took when it ran last, and the versions that they ran with.

Nothing is executed for it and nothing of it is typed: the seconds come with the stored results that the pages show,
the versions are those that such a result is found by. Seconds are no claims: they were not measured with nothing
beside them, and no text may quote them. So the tables are filled in when the page is written, after everything is
judged, and a build reads the page again each time.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from attnbook.bookkit import store
from attnbook.bookkit.reader import Execution, executions
from attnbook.claims.ledger_page import ledger_entry, reading_order

if TYPE_CHECKING:
    from sphinx.application import Sphinx

WORDS: Final[dict[str, dict[str, str]]] = {
    "ja": {
        "none": "このビルドは、どのページのコードも読み込んでいません。", "what": "ページと実験", "seconds": "秒",
        "total": "合計", "name": "名前", "version": "版", "machine": "機械",
    },
    "ko": {
        "none": "이 빌드는 어느 페이지의 코드도 읽지 않았습니다.", "what": "페이지와 실험", "seconds": "초",
        "total": "합계", "name": "이름", "version": "버전", "machine": "기계",
    },
    "en": {
        "none": "This build read no page's results.", "what": "page and experiment", "seconds": "seconds",
        "total": "sum", "name": "name", "version": "version", "machine": "machine",
    },
}  # fmt: skip

BUILT_WITH: Final = ("sphinx", "myst-nb", "myst-parser", "sphinxcontrib-bibtex", "sphinx-book-theme", "docutils")
"""What makes pages of results: other versions of them run nothing again."""


class execution_table(nodes.General, nodes.Element):
    """Where the two tables go."""


class ExecutionTable(SphinxDirective):
    """The `{execution}` directive; see the module."""

    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """A placeholder: results of pages that come later are not known yet."""
        self.env.note_reread()
        return [execution_table()]


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace each placeholder, at the moment the page is written: it is no text for translators."""
    language = str(app.config.language or "en").replace("-", "_").partition("_")[0]
    say = WORDS.get(language, WORDS["en"])
    for place, placeholder in enumerate(list(doctree.findall(execution_table))):
        found = executions(app.env)
        drawn: list[nodes.Node] = [_seconds(app, found, say, docname)] if found else [nodes.paragraph("", say["none"])]
        drawn.append(_table(say["name"], say["version"], [_body(None, versions(say))]))
        for table, name in zip(drawn, ("seconds", "versions"), strict=True):
            if isinstance(table, nodes.table):
                table["ids"].append(f"execution-{name}-{place}" if place else f"execution-{name}")
        placeholder.replace_self(drawn)


def versions(say: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Names and versions: of what numbers come from, of what pages are made with, and the kind of machine."""
    for name, version in store.versions().items():
        yield ("Python" if name == "python" else name), version or "–"
    for name in BUILT_WITH:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "–"
    yield say["machine"], f"{platform.system()} {platform.machine()}"


def _seconds(app: Sphinx, found: dict[str, Execution], say: dict[str, str], docname: str) -> nodes.table:
    """A group of rows for every page that ran code, in the order a reader turns the pages, and the sum."""
    order = {name: place for place, name in enumerate(reading_order(app.env, app.config.root_doc, set()))}
    bodies = []
    for name in sorted(found, key=lambda name: (order.get(name, len(order)), name)):
        title = app.env.titles[name].astext() if name in app.env.titles else name
        address = app.builder.get_relative_uri(docname, name)
        link = nodes.reference("", title, internal=True, refuri=address)
        rows = [(each.rpartition(".")[2], f"{seconds:.1f}") for each, seconds in found[name].experiments]
        bodies.append(_body((link, f"{found[name].seconds:.1f}"), rows))
    total = sum(each.seconds for each in found.values())
    bodies.append(_body((nodes.Text(say["total"]), f"{total:.1f}"), []))
    return _table(say["what"], say["seconds"], bodies)


def _body(group: tuple[nodes.Node, str] | None, rows: Iterable[tuple[str, str]]) -> nodes.tbody:
    """Rows of a name and what belongs to it, below one in bold that is about all of them."""
    body = nodes.tbody()
    if group is not None:
        body += _row(nodes.strong("", "", group[0]), nodes.strong("", group[1]), scope="rowgroup")
    for name, value in rows:
        about: nodes.Node = (
            nodes.literal("", name) if group else nodes.Text(name)
        )  # an experiment is called by its name in code
        body += _row(about, nodes.Text(value), scope="row")
    return body


def _row(about: nodes.Node, value: nodes.Node, scope: str) -> nodes.row:
    about_cell = ledger_entry("", nodes.paragraph("", "", about), scope=scope)
    return nodes.row("", about_cell, nodes.entry("", nodes.paragraph("", "", value)))


def _table(name: str, value: str, bodies: list[nodes.tbody]) -> nodes.table:
    group = nodes.tgroup(cols=2)
    group += [nodes.colspec(colwidth=70), nodes.colspec(colwidth=30)]
    group += nodes.thead(
        "", nodes.row("", *(ledger_entry("", nodes.paragraph("", x), scope="col") for x in (name, value)))
    )
    group += bodies
    return nodes.table("", group, classes=["execution"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive and what fills it.

    The book's configuration names this module itself: chapters import `attnbook.bookkit`, and would run again for
    every line that is added there.
    """
    app.add_node(execution_table)
    app.add_directive("execution", ExecutionTable)
    app.connect("doctree-resolved", fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
