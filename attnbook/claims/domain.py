"""What the pages claim and measure, kept in Sphinx's environment as plain data, one table a kind, keyed by page.

Nothing is judged here: the gate judges all of it at every build, changed or not, and hands the result back so that
pages can draw it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from docutils.nodes import reference
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment

from attnbook.claims.entries import Failure, Ledger, LedgerEntry
from attnbook.measure import Measurement


@dataclass(frozen=True)
class Claim:
    """A claim as a page holds it, before it is judged."""

    role: str
    ident: str
    text: str
    document: str
    line: int
    language: str
    number: int
    po: str = ""
    po_line: int = 0
    status: str = ""
    """Why it cannot be judged at all ("malformed", "misplaced", "untranslated"); empty where it can."""
    message: str = ""


@dataclass(frozen=True)
class Measured:
    """A measurement and where it was made."""

    measurement: Measurement
    cell: int | None = None
    line: int = 1


@dataclass(frozen=True)
class Message:
    """A translatable message that holds claims: role, id and text of each, in the order written."""

    text: str
    claims: tuple[tuple[str, str, str], ...]


class ClaimsDomain(Domain):
    """Claims, measurements and problems of all pages."""

    name = "claims"
    label = "Claims"
    data_version = 1
    # Each table maps a page to a tuple, but `readers`, whose tuples are empty: being a key is all they say.
    initial_data: ClassVar[dict[str, Any]] = {
        "claims": {}, "measured": {}, "problems": {}, "messages": {}, "chapters": {}, "readers": {}, "shown": {},
    }  # fmt: skip
    _by_page: ClassVar[tuple[str, ...]] = ("claims", "measured", "problems", "messages", "chapters", "readers")

    def __init__(self, env: BuildEnvironment) -> None:
        super().__init__(env)
        self.ledger: Ledger | None = None
        """The judged claims of this build; None until `env-updated` (and never pickled)."""
        self._entry_of: Mapping[tuple[str, int], LedgerEntry] = {}

    # -- what a page's reading puts in ------------------------------------------------------------------------------

    def note_measurement(
        self, docname: str, measurement: Measurement, *, cell: int | None = None, line: int | None = None
    ) -> None:
        """Record that a page measured something, in its code cell `cell` (from 1) that starts at `line`."""
        self._append("measured", docname, Measured(measurement, cell, line or 1))

    def note_claim(self, docname: str, claim: Claim) -> None:
        """Record a claim of a page."""
        self._append("claims", docname, claim)

    def note_message(self, docname: str, message: Message) -> None:
        """Record a message that holds claims, for the translators' catalogue."""
        self._append("messages", docname, message)

    def note_chapter(self, docname: str) -> None:
        """Record that a page executes code."""
        self.data["chapters"].setdefault(docname, ())

    def note_reader(self, docname: str) -> None:
        """Record that a page draws the entries of other pages: it is written again whenever any of them changes."""
        self.data["readers"].setdefault(docname, ())

    def problem(self, docname: str, line: int, status: str, message: str, *, document: str = "") -> None:
        """Report a located failure of a page, found while reading it: it joins the one list and the build is red.

        `status` names the kind, for the ledger; `message` says what is wrong and how to mend it. `document` is the
        file when it is not the page's own source (a catalogue, an included file), relative to `claims_root`.
        Call it while the page is read (directive, transform, `doctree-read`): what is found then is kept with the
        page, and the build is red until the page has changed. For a check of the whole book use the gate's
        `claims-check` event instead.
        """
        self._append("problems", docname, Failure(document, line, status, message))

    def _append(self, table: str, docname: str, item: object) -> None:
        pages = self.data[table]
        pages[docname] = (*pages.get(docname, ()), item)

    # -- what the gate and the pages take out -----------------------------------------------------------------------

    def claims(self) -> Iterable[tuple[str, Claim]]:
        """Every claim with its page, in the order of pages and within them of the text."""
        return self._items("claims")

    def measured(self) -> Iterable[tuple[str, Measured]]:
        """Every measurement with the page that made it."""
        return self._items("measured")

    def problems(self) -> Iterable[tuple[str, Failure]]:
        """Every problem reported while reading, with its page; `document` is empty for the page's own source."""
        return self._items("problems")

    def messages(self) -> Iterable[tuple[str, Message]]:
        """Every message that holds claims, with its page."""
        return self._items("messages")

    def _items(self, table: str) -> Iterable[tuple[str, Any]]:
        for docname in sorted(self.data[table]):
            for item in self.data[table][docname]:
                yield docname, item

    def chapters(self) -> Set[str]:
        """The pages that execute code or measured something."""
        return {*self.data["chapters"], *(docname for docname, made in self.data["measured"].items() if made)}

    def readers(self) -> Set[str]:
        """The pages that draw the entries of other pages."""
        return set(self.data["readers"])

    def judged(self, ledger: Ledger) -> None:
        """Take the gate's result, for the pages that draw it."""
        self.ledger = ledger
        self._entry_of = {(entry.docname, entry.number): entry for entry in ledger.entries}

    def entries(self) -> list[LedgerEntry]:
        """All judged claims of this build, in the order of pages; empty before `env-updated`."""
        return list(self.ledger.entries) if self.ledger else []

    def entry(self, docname: str, number: int) -> LedgerEntry | None:
        """The judged claim that a `claim_node` (its `number`) of a page stands for; None before `env-updated`."""
        return self._entry_of.get((docname, number))

    # -- Sphinx's housekeeping --------------------------------------------------------------------------------------

    def clear_doc(self, docname: str) -> None:
        """Forget a page, before it is read again or when it is gone."""
        for table in self._by_page:
            self.data[table].pop(docname, None)

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take the pages that a parallel reader read: they replace what was there."""
        for table in self._by_page:
            for docname in docnames:
                self.data[table].pop(docname, None)
                if docname in otherdata[table]:
                    self.data[table][docname] = otherdata[table][docname]

    def resolve_any_xref(self, *_args: Any, **_options: Any) -> list[tuple[str, reference]]:
        """Claims are no targets of references."""
        return []


def claims_domain(env: BuildEnvironment) -> ClaimsDomain:
    """The claims domain of an environment."""
    domain = env.domains["claims"]
    assert isinstance(domain, ClaimsDomain)
    return domain
