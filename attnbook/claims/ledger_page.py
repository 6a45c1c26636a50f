"""The page of all claims: a directive whose table is filled in when the page is written, after everything is judged.

In MyST a fenced `{claims-ledger}`, in reStructuredText `.. claims-ledger::`. The table is a real one, with a caption
and scopes; on a narrow screen each row becomes a small record. Every builder can write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from attnbook.claims.domain import claims_domain
from attnbook.claims.entries import Ledger, LedgerEntry
from attnbook.claims.html import accepts, anchor, page_address
from attnbook.claims.labels import quantity, words

COLUMNS = ("text", "measured value", "accepts", "kind", "place", "verdict")


class claims_ledger(nodes.General, nodes.Element):
    """Where the table goes."""


class ledger_entry(nodes.entry):
    """A table cell that carries `scope`, or the label it shows on a narrow screen."""


class ClaimsLedger(SphinxDirective):
    """`claims-ledger`: all claims of the project, sorted by page, with how many were judged and are unowned."""

    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """A placeholder: while pages are read nothing is judged yet."""
        claims_domain(self.env).note_reader(self.env.docname)
        return [claims_ledger()]


def fill(app: Sphinx, doctree: nodes.document, _docname: str) -> None:
    """Replace each placeholder of a page by the table, at the moment the page is written."""
    for placeholder in list(doctree.findall(claims_ledger)):
        ledger = claims_domain(app.env).ledger or Ledger(app.config.language)
        placeholder.replace_self([*_summary(ledger, app.config.language), *_table(ledger, app)])


def _summary(ledger: Ledger, language: str | None) -> Iterator[nodes.Node]:
    """How many were judged and how many numbers nobody owns: in the page's language, and as every tool prints it."""
    say = words(language)
    paragraph = nodes.paragraph(classes=["claims-summary"])
    plain = f"{ledger.judged} judged, {ledger.unowned} unowned"
    sentence = say["summary"].format(judged=ledger.judged, unowned=ledger.unowned)
    if sentence != plain:
        paragraph += nodes.Text(sentence + " ")
    paragraph += nodes.literal("", plain)
    not_fine = sum(not entry.fine for entry in ledger.entries)
    if not_fine:
        paragraph += [nodes.Text(" "), nodes.strong("", say["not fine"].format(count=not_fine))]
    yield paragraph


def _table(ledger: Ledger, app: Sphinx) -> Iterator[nodes.Node]:
    say = words(app.config.language)
    entries = _by_page(ledger, app.env)
    if not entries:
        return
    group = nodes.tgroup(cols=len(COLUMNS))
    group += [nodes.colspec(colwidth=1) for _ in COLUMNS]
    head = nodes.row()
    head += [ledger_entry("", nodes.paragraph("", say[name]), scope="col") for name in COLUMNS]
    group += [nodes.thead("", head), nodes.tbody("", *(_row(entry, app) for entry in entries))]
    yield nodes.table("", nodes.title("", say["claims"]), group, classes=["claims-ledger"])


def _row(entry: LedgerEntry, app: Sphinx) -> nodes.row:
    language = app.config.language
    say = words(language)
    builder: Any = app.builder
    text = nodes.paragraph("", "", _link(builder, entry.text, entry.docname, anchor(entry.docname, entry.number)))
    text += [nodes.Text(" "), nodes.inline("", entry.id, classes=["claims-id"])]
    cell = say["cell"].format(number=entry.cell) if entry.cell is not None else ""
    place = nodes.paragraph("", _title(app.env, entry.docname) + " ")
    if cell:
        place += _link(builder, cell, entry.measured_docname, entry.cell_anchor)
    verdict = say["fine"] if entry.fine else entry.verdict
    cells = {
        "text": text,
        "measured value": _plain(quantity(entry.value, entry.unit, language)),
        "accepts": _plain(accepts(entry) or say["true"]),
        "kind": _plain(say.get(entry.kind, entry.kind)),
        "place": place,
        "verdict": _plain(verdict) if entry.fine else nodes.paragraph("", "", nodes.strong("", verdict)),
    }
    row = nodes.row(classes=[] if entry.fine else ["claims-not-fine"])
    for name, content in cells.items():
        cell_node = ledger_entry("", content, classes=[f"claims-{name.replace(' ', '-')}"])
        cell_node["scope" if name == "text" else "label"] = "row" if name == "text" else say[name]
        row += cell_node
    return row


def _plain(text: str) -> nodes.paragraph:
    return nodes.paragraph("", text)


def _link(builder: Any, text: str, docname: str, name: str) -> nodes.Node:
    """Text that leads to an id of a page, where the builder can write links between pages."""
    if builder.format != "html" or builder.name == "epub" or docname not in builder.env.all_docs:
        return nodes.Text(text)
    return nodes.reference("", text, internal=True, refuri=page_address(builder, docname, name))


def _title(env: BuildEnvironment, docname: str) -> str:
    title = env.titles.get(docname)
    return title.astext() if title is not None else docname


def _by_page(ledger: Ledger, env: BuildEnvironment) -> list[LedgerEntry]:
    """The entries in the order a reader turns the pages; pages outside any table of contents come last."""
    order = {docname: place for place, docname in enumerate(_reading_order(env, env.config.root_doc, set()))}
    return sorted(ledger.entries, key=lambda e: (order.get(e.docname, len(order)), e.docname, e.number))


def _reading_order(env: BuildEnvironment, docname: str, seen: set[str]) -> Iterator[str]:
    if docname not in seen:
        seen.add(docname)
        yield docname
        for child in env.toctree_includes.get(docname, ()):
            yield from _reading_order(env, child, seen)


def visit_entry(translator: Any, node: ledger_entry) -> None:
    """A cell as `<th scope>` or as `<td data-label>`."""
    if "scope" in node:
        translator.body.append(translator.starttag(node, "th", "", scope=node["scope"]))
        translator.context.append("</th>\n")
    else:
        translator.body.append(translator.starttag(node, "td", "", **{"data-label": node["label"]}))
        translator.context.append("</td>\n")
    node.parent.column += 1


def depart_entry(translator: Any, _node: ledger_entry) -> None:
    """Close the cell."""
    translator.body.append(translator.context.pop())


def setup(app: Sphinx) -> None:
    """Add the directive; other writers draw a `ledger_entry` as any table cell."""
    app.add_node(claims_ledger)
    app.add_node(ledger_entry, html=(visit_entry, depart_entry))
    app.add_directive("claims-ledger", ClaimsLedger)
    app.connect("doctree-resolved", fill)
