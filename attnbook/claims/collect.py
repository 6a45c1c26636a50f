"""What a finished page claims, and what on it is refused: one pass over its document tree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from docutils import nodes
from sphinx.environment import BuildEnvironment

from attnbook.claims import unowned
from attnbook.claims.catalogue import find_message
from attnbook.claims.domain import Claim, claims_domain
from attnbook.claims.mime import CELLS_SEEN
from attnbook.claims.neighbours import outside
from attnbook.claims.nodes import claim_node, file_of_node, line_of_node, page_text
from attnbook.claims.placement import Printed, forbidden_place, printed_roles, unbraced_roles, unknown_roles
from attnbook.claims.prose import Block, blocks
from attnbook.claims.settings import language_of, relative, source_language
from attnbook.claims.sources import LITERAL, line_of, read_source, roles_in

CELL_ANCHOR = "code-cell-{}"
"""The id given to a page's code cells, counted from 1, so that a claim can link to the cell that measured it."""
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")
_WORDS_IN_MATHS = re.compile(r"\\(?:text|mbox)\s?\{([^{}]*)\}")


class Collector:
    """Reads one page. `messages` gives the source message of each block, by the identity of its node."""

    def __init__(
        self,
        env: BuildEnvironment,
        document: nodes.document,
        messages: Mapping[int, str],
        translates: bool,
    ) -> None:
        self.env, self.document = env, document
        self.messages, self.translates = messages, translates
        self.page = env.docname
        self.path = Path(env.doc2path(env.docname))
        self.domain = claims_domain(env)

    def run(self) -> None:
        """Collect claims, then refuse printed roles, words outside a role, and numerals that nobody owns."""
        self._cells()
        for number, node in enumerate(self.document.findall(claim_node)):
            node["number"] = number
            self.domain.note_claim(self.page, self._claim(node, number))
        for printed in printed_roles(self.document):
            if not printed.allowed:
                self._printed(printed)
        self._no_roles()
        for block in blocks(self.document):
            language = self._language(block.node)
            self._hidden_order(block)
            self._neighbours(block, language)
            if self.env.config.claims_check_numerals:
                self._numerals(block, language)

    def _cells(self) -> None:
        """Give each cell that measured an id to link to; drop the empty box of a cell that only measured."""
        numbers: dict[int, int] = self.env.temp_data.pop(CELLS_SEEN, None) or {}
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") == "cell_code":
                self.domain.note_chapter(self.page)
                if cell.get("cell_index") in numbers:
                    cell["ids"].append(CELL_ANCHOR.format(numbers[cell["cell_index"]]))
            elif cell.get("nb_element") == "cell_code_output" and not cell.children:
                cell.parent.remove(cell)

    # -- claims ---------------------------------------------------------------------------------------------------

    def _claim(self, node: claim_node, number: int) -> Claim:
        role, text = node["role"], page_text(node)
        status, message = "", ""
        if place := forbidden_place(node):
            status, message = "misplaced", f"{role} {text!r} stands in {place}: move it into running text"
        elif node["malformed"]:
            written = f"{{{role}}}`{node['raw']}`"
            status, message = "malformed", f"{written} has {node['malformed']}: write {{{role}}}`text <id>`"
        elif node.get("untranslated"):
            status, message = "untranslated", node["untranslated"]
        return Claim(
            role, node["ident"], text, relative(self.env, file_of_node(node, self.path)), node.line or 1,
            self._language(node), number, po=node.get("po", ""), po_line=node.get("po_line", 0),
            status=status, message=message,
        )  # fmt: skip

    def _language(self, node: nodes.Element) -> str:
        """The language a block is in: the build's, or the source's where a translation left it as it was."""
        if not self.translates:
            return source_language(self.env) if self.env.config.claims_source_language else language_of(self.env)
        parent: nodes.Element | None = node
        while parent is not None and "translated" not in parent:
            parent = parent.parent
        return language_of(self.env) if parent is not None and parent["translated"] else source_language(self.env)

    # -- what is refused --------------------------------------------------------------------------------------------

    def _printed(self, printed: Printed) -> None:
        match = LITERAL.search(printed.text)
        roles = roles_in(printed.text)
        shown = f"{{{roles[0].role}}}`{roles[0].raw}`" if roles else match[0] if match else ""
        why = f"in {printed.place} is printed as it stands"
        if printed.place == "a table cell":
            why += " (a | ends a table cell; or a backtick is missing)"
        elif printed.place == "text":
            why += " (a backtick missing?)"
        snippets = [line for line in printed.text.split("\n") if LITERAL.search(line)] + [shown]
        self._problem(printed.node, "printed", f"{shown} {why}: a role works in running text only", snippets)

    def _no_roles(self) -> None:
        """Refuse what was meant to be a role and is none."""
        for node, text, role in unbraced_roles(self.document):
            wrong = f"{role} without its braces" if role else f"`{text}` is code, and bound to nothing"
            rst = file_of_node(node, self.path).suffix == ".rst"
            mended = f":{role or 'claim'}:`{text}`" if rst else f"{{{role or 'claim'}}}`{text}`"
            self._problem(node, "printed", f"{wrong}: write {mended}", [f"`{text}`", text])
        for note, name, near in unknown_roles(self.document):
            note.line = note.line or note.get("line")
            message = f"unknown role {name}: did you mean {near}?"
            self._problem(note, "unknown role", message, [f"{{{name}}}", f":{name}:"])

    def _neighbours(self, block: Block, language: str) -> None:
        for start, node in block.claims:
            if node["role"] != "claim" or node["malformed"]:
                continue
            text = page_text(node)
            before, after = block.beside(start)
            words = outside(text, before, after, language)
            if words:
                message = f"claim {node['ident']} says {text} but {words!r} beside it belongs inside the role"
                self._problem(node, "unit outside", message, [], line=node.line or 1)
        for (start, node), (next_start, following) in itertools.pairwise(block.claims):
            if next_start == start + 1 and node["role"] == following["role"] == "claim":
                both = f"claims {node['ident']} and {following['ident']}"
                message = f"{both} touch, and read {page_text(node)}{page_text(following)}: write words between them"
                self._problem(node, "unit outside", message, [], line=node.line or 1)

    def _hidden_order(self, block: Block) -> None:
        """A page that shows its characters in another order than it holds them shows other numbers."""
        if control := _DIRECTION.search(block.text):
            message = f"the invisible U+{ord(control[0]):04X} turns the order of what is read around: take it out"
            self._problem(block.node, "hidden", message, [control[0]])

    def _numerals(self, block: Block, language: str) -> None:
        if LITERAL.search(block.text):
            return  # a printed role, refused already; its number is the author's claim
        for numeral in unowned.find(block.text, language):
            snippets = [block.around(numeral.start, numeral.end), numeral.text]
            message = f"nobody owns the number {numeral.text}: write it as a claim, or a small count in words"
            self._problem(block.node, "unowned", message, snippets)
        for _, code in block.code:
            words = " ".join(_WORDS_IN_MATHS.findall(code))
            if unowned.states_result(code, language) or unowned.find(words, language):
                short = " ".join(code.split())
                message = f"code or formula {short!r} states a result that nobody owns: write the number as a claim"
                self._problem(block.node, "unowned", message, [code.split("\n")[0]])

    def _problem(
        self, node: nodes.Node, status: str, message: str, snippets: Sequence[str], line: int | None = None
    ) -> None:
        """Report at the source's line, or in a translated block at its message in the catalogue."""
        block = node if isinstance(node, nodes.Element) else node.parent
        while self.translates and block is not None:
            if block.get("translated") and id(block) in self.messages:
                where = find_message(self.env, self.page, self.messages[id(block)])
                document = relative(self.env, where.path)
                self.domain.problem(self.page, where.line, status, message, document=document)
                return
            block = block.parent
        path = file_of_node(node, self.path)
        if line is None:
            # The lines that MyST-NB gives to an .ipynb are no lines of the file.
            start = 1 if path.suffix == ".ipynb" else line_of_node(node) or 1
            line = line_of(read_source(path).split("\n"), snippets, start)
        self.domain.problem(self.page, line, status, message, document=relative(self.env, path))
