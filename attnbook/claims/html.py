"""How a claim looks in HTML: ordinary text with a faint underline, and a card that says what was measured.

The card is phrasing content (spans and one link), because a claim stands inside paragraphs. It opens by CSS alone, on
pointing, tapping or keyboard focus, and stays while pointer or focus is on it; only closing it with Escape needs the
script. Every other writer prints the text and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from attnbook.claims.domain import claims_domain
from attnbook.claims.entries import LedgerEntry
from attnbook.claims.labels import interval, number, quantity, words
from attnbook.claims.nodes import claim_node

STATIC = Path(__file__).parent / "static"
WITH_CARDS = ("html", "dirhtml", "singlehtml")
"""The builders whose pages are read in a browser. An EPUB has no hover and no room: it gets the text."""

SHORT = 12
"""Characters of a number that stay on one line: 1e-12 torn after its hyphen is another number."""


def anchor(docname: str, number: int, *, builder: str = "html") -> str:
    """The id of a claim in its page; where all pages are one file, the page's name is part of it."""
    page = f"{nodes.make_id(docname)}-" if builder == "singlehtml" else ""
    return f"claim-{page}{number}"


def visit_claim(translator: Any, node: claim_node) -> None:
    """Open the claim's span. `translator` is Sphinx's HTML writer."""
    entry = _entry(translator, node)
    if entry is None:
        translator.body.append(translator.starttag(node, "span", "", CLASS="claim"))
        return
    name = anchor(entry.docname, entry.number, builder=translator.builder.name)
    kind = "claim" if entry.fine else "claim claim-not-fine"
    if entry.role == "claim" and len(node.astext()) <= SHORT:
        kind += " claim-short"
    attributes = {"tabindex": "0", "aria-describedby": f"{name}-card", "ids": [name]}
    translator.body.append(translator.starttag(node, "span", "", CLASS=kind, **attributes))


def depart_claim(translator: Any, node: claim_node) -> None:
    """Close the span, after the card."""
    entry = _entry(translator, node)
    if entry is not None:
        link = ("", "") if _in_link(node) else cell_link(translator.builder, entry, translator.docnames[-1])
        name = anchor(entry.docname, entry.number, builder=translator.builder.name)
        translator.body.append(card(entry, f"{name}-card", link, translator.config.language))
    translator.body.append("</span>")


def card(entry: LedgerEntry, name: str, link: tuple[str, str], language: str | None) -> str:
    """The card of a claim: `name` is its id, `link` the address of the cell and the title of the cell's page."""
    rows = "".join(
        f'<span class="claim-row"><span class="claim-key">{escape(key)}:</span> {value}</span> '
        for key, value in _rows(entry, link, words(language), language)
    )
    # A card repeats "measured", "accepts" and the number once a claim: Pagefind, a search that many static sites use,
    # would find every page for them. Where there is no Pagefind the attribute says nothing to anyone.
    return (
        f'<span class="claim-card" role="tooltip" id="{escape(name)}" translate="no" data-pagefind-ignore="all">'
        f"{rows.rstrip()}</span>"
    )


def _rows(
    entry: LedgerEntry, link: tuple[str, str], say: dict[str, str], language: str | None
) -> Iterator[tuple[str, str]]:
    """Label and HTML of each line of the card; a line that would say nothing is left out."""
    yield say["value"], escape(quantity(entry.value, entry.unit, language))
    if entry.role == "claim" and accepts(entry):
        yield say["accepts"], escape(accepts(entry))
    yield say["kind"], escape(say.get(entry.kind, entry.kind))
    if entry.spread is not None:
        yield say["spread"], escape(number(entry.spread, language))
    if entry.device:
        yield say["device"], escape(", ".join(filter(None, (entry.device, entry.date))))
    if entry.source:
        yield say["source"], escape(entry.source)
    if entry.experiment:
        settings = ", ".join(f"{key}={value}" for key, value in entry.settings.items())
        yield say["experiment"], f"<code>{escape(entry.experiment.rpartition('.')[2])}({escape(settings)})</code>"
    address, title = link
    cell = say["cell"].format(number=entry.cell) if entry.cell is not None else ""
    place = say["and"].join(filter(None, (title, cell))) or entry.measured_in
    if place:
        yield say["place"], f'<a href="{escape(address)}">{escape(place)}</a>' if address else escape(place)
    if not entry.fine:
        yield say["verdict"], escape(f"{entry.verdict} ({entry.message})" if entry.message else entry.verdict)


def accepts(entry: LedgerEntry) -> str:
    """The accepted interval without words; a special value (nan) as the checker says it; "" where there is none."""
    low, high = entry.accepts.low, entry.accepts.high
    if low is None and high is None:
        return "" if entry.accepts.text == "true" else entry.accepts.text
    return interval(low, high, low_open=entry.accepts.low_open, high_open=entry.accepts.high_open)


def cell_link(builder: Any, entry: LedgerEntry, docname: str) -> tuple[str, str]:
    """The address of the cell that measured a claim, seen from the page `docname`, and its page's title.

    The title is empty for a cell of the same page. Both are empty where nothing is known.
    """
    if entry.measured_docname not in builder.env.all_docs:
        return "", ""
    title = builder.env.titles.get(entry.measured_docname)
    address = page_address(builder, docname, entry.measured_docname, entry.cell_anchor)
    return address, "" if entry.measured_docname == docname or title is None else title.astext()


def page_address(builder: Any, from_page: str, to_page: str, name: str) -> str:
    """The address of an id in a page, seen from another; without an id, of the page."""
    if builder.name == "singlehtml":
        return f"#{name}" if name else f"#document-{to_page}"
    fragment = f"#{name}" if name else ""
    if from_page == to_page and fragment:
        return fragment
    address: str = builder.get_relative_uri(from_page, to_page)
    return address + fragment


def _entry(translator: Any, node: claim_node) -> LedgerEntry | None:
    """The judged claim of a node, where a card can be drawn."""
    builder = translator.builder
    if builder.name not in WITH_CARDS:
        return None
    page = translator.docnames[-1]  # in a book that is one file, not the page being written
    return claims_domain(builder.env).entry(page, node.get("number", -1))


def _in_link(node: nodes.Node) -> bool:
    """Does the claim stand inside a link? A link holds no second one."""
    parent = node.parent
    while parent is not None:
        if isinstance(parent, nodes.reference):
            return True
        parent = parent.parent
    return False


def visit_plain(_translator: Any, _node: claim_node) -> None:
    """Print the text of a claim as it is."""


def setup(app: Sphinx) -> None:
    """Teach the writers to draw claims, and pages to load what the cards need."""
    plain = (visit_plain, visit_plain)
    app.add_node(
        claim_node, html=(visit_claim, depart_claim), epub=plain, latex=plain, text=plain, man=plain, texinfo=plain
    )
    app.connect("config-inited", _serve_static)
    app.add_css_file("claims.css")
    app.add_js_file("claims.js", loading_method="defer")


def _serve_static(_app: Sphinx, config: Config) -> None:
    # Before the settings are compared with those of the last build: later they would always seem to have changed.
    config.html_static_path = [*config.html_static_path, str(STATIC)]
