"""What is taken from a page while it is read, in three steps around Sphinx's translation of it.

1. `ReadSource`, before `Locale` (priority 20): every role's exact line; the roles that were lost; what each message
   claims.
2. `CompareTranslations`, right after it: each translated message against what it claimed before.
3. `CollectClaims`, when the page is whole and before Sphinx copies its titles (880): claims, forbidden places, printed
   roles, numerals that nobody owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util.nodes import extract_messages

from attnbook.claims.catalogue import PoMessage, find_message
from attnbook.claims.collect import Collector
from attnbook.claims.domain import ClaimsDomain, Message, claims_domain
from attnbook.claims.nodes import claim_node, file_of_node, line_of_node, page_text
from attnbook.claims.placement import Printed, printed_roles
from attnbook.claims.settings import is_translation, language_of, relative, source_language
from attnbook.claims.sources import Written, match_up, read_source, roles_in
from attnbook.claims.translations import Said, differences

_KEPT = "attnbook_claims"


@dataclass
class Remembered:
    """What the steps hand to one another while one page is read."""

    messages: dict[int, tuple[nodes.Element, str, tuple[Said, ...], int]] = field(default_factory=dict)
    """By the identity of the block's node, which survives translation: node, message, its claims, its line."""


class _Step(SphinxTransform):
    @property
    def domain(self) -> ClaimsDomain:
        return claims_domain(self.env)

    @property
    def remembered(self) -> Remembered:
        return cast(Remembered, self.env.temp_data[_KEPT])

    @property
    def translates(self) -> bool:
        return is_translation(self.env)


class ReadSource(_Step):
    """Find each role of the page in its source, and remember what each message claims."""

    default_priority = 19

    def apply(self, **_options: Any) -> None:
        """Runs on the page as it was parsed, in the language it was written in."""
        page = Path(self.env.doc2path(self.env.docname))
        self.env.temp_data[_KEPT] = Remembered()
        claims = [(file_of_node(node, page), node) for node in self.document.findall(claim_node)]
        printed = [(file_of_node(found.node, page), found) for found in printed_roles(self.document)]
        for path in dict.fromkeys([page, *(path for path, _ in (*claims, *printed))]):
            here = [node for file, node in claims if file == path]
            lost = self._find_lines(path, here, [found for file, found in printed if file == path])
            # Of an included file a part may be left out on purpose; alt text is where an included role vanishes.
            self._report_lost(page, path, [role for role in lost if path == page or role.place == "alt text"])
        for node, text in extract_messages(self.document):
            said = tuple(Said(c["role"], c["ident"], page_text(c)) for c in node.findall(claim_node))
            line = next((c.line for c in node.findall(claim_node) if c.line), node.line) or 1
            self.remembered.messages[id(node)] = (node, text, said, line)
            if said:
                self.domain.note_message(
                    self.env.docname, Message(text, tuple((s.role, s.ident, s.text) for s in said))
                )

    def _find_lines(self, path: Path, claims: Sequence[claim_node], printed: Sequence[Printed]) -> list[Written]:
        """Give the claims of a file their exact lines; the roles in it that came to nothing."""
        in_notebook = path.suffix == ".ipynb"  # MyST-NB's lines are no lines of the file there
        seen = [Written(node["role"], node["raw"], 0 if in_notebook else node.line or 0) for node in claims]
        for found in printed:
            line = 0 if in_notebook else line_of_node(found.node)
            seen += [Written(role.role, role.raw, line) for role in roles_in(found.text)]
        lines, lost = match_up(seen, roles_in(read_source(path)))
        for node, line in zip(claims, lines, strict=False):
            node.line = line or node.line or 1
        # A | ended the table cell: the first half of the role is on the page, and is refused there.
        cells = "".join(found.text for found in printed if found.place == "a table cell")
        return [role for role in lost if "|" not in role.raw or role.raw.partition("|")[0].rstrip() not in cells]

    def _report_lost(self, page: Path, path: Path, lost: Sequence[Written]) -> None:
        for role in lost:
            where = f" in {role.place}" if role.place else ""
            message = f"{role.role} {role.raw!r}{where} never reaches the page: move it into running text"
            document = "" if path == page else relative(self.env, path)
            self.domain.problem(self.env.docname, role.line, "misplaced", message, document=document)


class CompareTranslations(_Step):
    """Compare what each translated message claims with what its source does."""

    default_priority = 21  # right after Locale

    def apply(self, **_options: Any) -> None:
        """Marks the claims of messages that are not translated; they are not judged, the message fails."""
        if not self.translates:
            return
        for node, text, ours, line in self.remembered.messages.values():
            claims = list(node.findall(claim_node))
            if not ours and not claims:
                continue
            where = find_message(self.env, self.env.docname, text)
            if not node.get("translated"):
                self._untranslated(claims, where, ours)
                continue
            for claim in claims:
                claim["po"], claim["po_line"] = relative(self.env, where.path), where.line
                claim.line = line
            theirs = [Said(claim["role"], claim["ident"], page_text(claim)) for claim in claims]
            for status, message in differences(ours, theirs, source_language(self.env), language_of(self.env)):
                self._problem(where, status, message)
        self._outside_messages()

    def _untranslated(self, claims: Sequence[claim_node], where: PoMessage, ours: Sequence[Said]) -> None:
        state = {
            "translated": "has a translation that Sphinx does not use (not one paragraph?)",
            "missing": "is not in the catalogue",
            "no catalogue": "has no catalogue",
            "unreadable": "is in a catalogue that cannot be read",
        }.get(where.state, f"is {where.state}")
        held = ", ".join(map(str, ours))
        message = f"a message that holds {held} {state} in {language_of(self.env)}"
        self._problem(where, "fuzzy" if where.state == "fuzzy" else "untranslated", message)
        for claim in claims:
            claim["untranslated"] = message
            claim["po"], claim["po_line"] = relative(self.env, where.path), where.line

    def _outside_messages(self) -> None:
        """Claims that no message holds cannot be translated: they would stay in the source's language."""
        held = {id(c) for node, *_ in self.remembered.messages.values() for c in node.findall(claim_node)}
        for claim in self.document.findall(claim_node):
            if id(claim) not in held:
                message = f"{claim['role']} {page_text(claim)!r} stands where no translation reaches it"
                claim["untranslated"] = message
                self.domain.problem(self.env.docname, claim.line or 1, "untranslated", message)

    def _problem(self, where: PoMessage, status: str, message: str) -> None:
        self.domain.problem(
            self.env.docname, where.line, status, message, document=relative(self.env, where.path)
        )  # fmt: skip


class CollectClaims(_Step):
    """Put the page's claims into the domain, and refuse what may not be on the page."""

    default_priority = 870

    def apply(self, **_options: Any) -> None:
        """Runs on the finished page, in the language of the build."""
        remembered = self.remembered
        del self.env.temp_data[_KEPT]
        messages = {key: text for key, (_, text, _, _) in remembered.messages.items()}
        Collector(self.env, self.document, messages, self.translates).run()
