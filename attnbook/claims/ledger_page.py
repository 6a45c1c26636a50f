"""The page of all claims: a directive whose table is filled in when the page is written, after everything is judged.

In MyST a fenced `{claims-ledger}`, in reStructuredText `.. claims-ledger::`. The table is a real one, with a caption
and scopes; on a narrow screen each row becomes a small record. Every builder can write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from attnbook.claims.domain import claims_domain
from attnbook.claims.entries import Ledger, LedgerEntry
from attnbook.claims.html import WITH_CARDS, accepts, anchor, cell_link, page_address
from attnbook.claims.labels import quantity, words

COLUMNS = {"text": 30, "value": 14, "accepts": 22, "kind": 10, "place": 20, "verdict": 10}
"""Each column and its width in characters, for writers that lay a table out in those."""
_ANCHOR = "claims-ledger"


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


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace each placeholder of a page by the table, at the moment the page is written."""
    for number, placeholder in enumerate(list(doctree.findall(claims_ledger))):
        ledger = claims_domain(app.env).ledger or Ledger(app.config.language)
        drawn = [*_summary(ledger, app.config.language), *_table(ledger, app, docname)]
        drawn[-1]["ids"].append(f"{_ANCHOR}-{number}" if number else _ANCHOR)  # Sphinx warns of a table without an id
        placeholder.replace_self(drawn)


def _summary(ledger: Ledger, language: str | None) -> Iterator[nodes.Element]:
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


def _table(ledger: Ledger, app: Sphinx, docname: str) -> Iterator[nodes.Element]:
    say = words(app.config.language)
    entries = _by_page(ledger, app.env)
    if not entries:
        return
    group = nodes.tgroup(cols=len(COLUMNS))
    group += [nodes.colspec(colwidth=width) for width in COLUMNS.values()]
    head = nodes.row()
    head += [ledger_entry("", nodes.paragraph("", say[name]), scope="col") for name in COLUMNS]
    group += nodes.thead("", head)
    for page, of_page in groupby(entries, key=lambda entry: entry.docname):
        group += nodes.tbody("", _page_row(page, app, docname), *(_row(entry, app, docname) for entry in of_page))
    yield nodes.table("", nodes.title("", say["claims"]), group, classes=["claims-ledger"])


def _page_row(page: str, app: Sphinx, docname: str) -> nodes.row:
    """The heading above the claims of a page."""
    link = _link(app.builder, _title(app.env, page), page_address(app.builder, docname, page, ""))
    heading = ledger_entry("", nodes.paragraph("", "", link), scope="rowgroup", morecols=len(COLUMNS) - 1)
    return nodes.row("", heading, classes=["claims-page"])


def _row(entry: LedgerEntry, app: Sphinx, docname: str) -> nodes.row:
    say = words(app.config.language)
    row = nodes.row(classes=[] if entry.fine else ["claims-not-fine"])
    for name, content in _cells(entry, app, docname).items():
        kind = {"scope": "row"} if name == "text" else {"label": say[name]}  # the text is what the row is about
        row += ledger_entry("", nodes.paragraph("", "", *content), classes=[f"claims-{name}"], **kind)
    return row


def _cells(entry: LedgerEntry, app: Sphinx, docname: str) -> dict[str, list[nodes.Node]]:
    """What stands in each column of a row, seen from the page `docname`."""
    language, builder = app.config.language, app.builder
    say = words(language)
    claim = anchor(entry.docname, entry.number, builder=builder.name)
    text = _link(builder, entry.text, page_address(builder, docname, entry.docname, claim))
    address, title = cell_link(builder, entry, docname)
    cell = say["cell"].format(number=entry.cell) if entry.cell is not None else ""
    page = title if entry.measured_docname != entry.docname else ""
    place = say["and"].join(filter(None, (page, cell))) or title or entry.measured_in
    return {
        "text": [text, nodes.Text(" "), nodes.inline("", entry.id, classes=["claims-id"])],
        "value": [nodes.Text(quantity(entry.value, entry.unit, language))],
        "accepts": [nodes.Text(accepts(entry) or (say["true"] if entry.role == "holds" else "–"))],
        "kind": [nodes.Text(say.get(entry.kind, entry.kind) or "–")],
        "place": [_link(builder, place or "–", address)],
        "verdict": [nodes.Text(say["fine"]) if entry.fine else nodes.strong("", entry.verdict)],
    }


def _link(builder: Any, text: str, address: str) -> nodes.Node:
    """Text that leads to an address, where the builder can write links between pages."""
    if not address or builder.name not in WITH_CARDS:
        return nodes.Text(text)
    return nodes.reference("", text, internal=True, refuri=address)


def _title(env: BuildEnvironment, docname: str) -> str:
    title = env.titles.get(docname)
    return title.astext() if title is not None else docname


def _by_page(ledger: Ledger, env: BuildEnvironment) -> list[LedgerEntry]:
    """The entries in the order a reader turns the pages; pages outside any table of contents come last."""
    order = {docname: place for place, docname in enumerate(reading_order(env, env.config.root_doc, set()))}
    return sorted(ledger.entries, key=lambda e: (order.get(e.docname, len(order)), e.docname, e.number))


def reading_order(env: BuildEnvironment, docname: str, seen: set[str]) -> Iterator[str]:
    """The pages from `docname` on, as the tables of contents lead through them."""
    if docname not in seen:
        seen.add(docname)
        yield docname
        for child in env.toctree_includes.get(docname, ()):
            yield from reading_order(env, child, seen)


def visit_entry(translator: Any, node: ledger_entry) -> None:
    """A cell as `<th scope>` or as `<td data-label>`."""
    if "scope" in node:
        columns = {"colspan": node["morecols"] + 1} if "morecols" in node else {}
        translator.body.append(translator.starttag(node, "th", "", scope=node["scope"], **columns))
        translator.context.append("</th>\n")
    else:
        translator.body.append(translator.starttag(node, "td", "", **{"data-label": node["label"]}))
        translator.context.append("</td>\n")
    row: Any = node.parent
    row.column += 1 + node.get("morecols", 0)


def depart_entry(translator: Any, _node: ledger_entry) -> None:
    """Close the cell."""
    translator.body.append(translator.context.pop())


def setup(app: Sphinx) -> None:
    """Add the directive; other writers draw a `ledger_entry` as any table cell."""
    app.add_node(claims_ledger)
    app.add_node(ledger_entry, html=(visit_entry, depart_entry))
    app.add_directive("claims-ledger", ClaimsLedger)
    app.connect("doctree-resolved", fill)
