"""`{terms}`: a part of the glossary, from the table that tests and translators read too.

    ```{terms} heads
    ```

shows the rows of the book's `glossary.csv` whose group is `heads`, in their order, as Sphinx's own glossary: any page
can link to a term with `{term}`. A row is `group,ja,en,ko,avoid,definition`: names with ` / ` between them where there
are several, ways of writing that the book does not use, and a definition in the source's language, which may hold
markup. The names in the other languages stand below the definition; they are the same for every reader.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.domains.std import make_glossary_term
from sphinx.util.docutils import SphinxDirective

from attnbook.bookkit import problems

if TYPE_CHECKING:
    from sphinx.application import Sphinx

TABLE: Final = "glossary.csv"
COLUMNS: Final = ("group", "ja", "en", "ko", "avoid", "definition")
LANGUAGES: Final = {"ja": "日本語", "en": "English", "ko": "한국어"}
BETWEEN: Final = " / "


@dataclass(frozen=True)
class Term:
    """A row of the table."""

    group: str
    names: dict[str, tuple[str, ...]]
    """By language; at least one each."""
    avoid: tuple[str, ...]
    """Ways to write it in the source's language that the book does not use."""
    definition: str
    line: int
    """Of the table, from 1."""

    @property
    def id(self) -> str:
        """The anchor: of the English name, so that it stays when the order changes and reads in an address."""
        return "term-" + re.sub(r"[^a-z0-9]+", "-", self.names["en"][0].lower()).strip("-")


def load(path: Path) -> list[Term]:
    """The table. Raises ValueError with the line of what cannot be read: another heading, an empty or a double name."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, strict=True)
        head = tuple(next(reader, ()))
        if head != COLUMNS:
            raise ValueError(f"{path.name}:1: expected the columns {','.join(COLUMNS)}, got {','.join(head)}")
        terms = []
        for row in reader:
            if len(row) != len(COLUMNS):
                raise ValueError(f"{path.name}:{reader.line_num}: expected {len(COLUMNS)} columns, got {len(row)}")
            terms.append(_term(dict(zip(COLUMNS, row, strict=True)), f"{path.name}:{reader.line_num}", reader.line_num))
    for language in LANGUAGES:
        seen: dict[str, int] = {}
        for term in terms:
            for name in term.names[language]:
                if name in seen:
                    raise ValueError(f"{path.name}:{term.line}: {name!r} is a name of line {seen[name]} already")
                seen[name] = term.line
    return terms


def _term(row: dict[str, str], place: str, line: int) -> Term:
    for column in COLUMNS:
        if column != "avoid" and not row[column].strip():
            raise ValueError(f"{place}: {column} is empty")
    names = {language: tuple(row[language].split(BETWEEN)) for language in LANGUAGES}
    avoid = tuple(row["avoid"].split(BETWEEN)) if row["avoid"] else ()
    return Term(row["group"], names, avoid, row["definition"], line)


def written(text: str, variant: str) -> bool:
    """Does Japanese text hold this way of writing a word? A longer word that only begins like it is another one."""
    return re.search(re.escape(variant) + "(?!ー)", text) is not None


class Terms(SphinxDirective):
    """The `{terms}` directive; see the module."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """A glossary of one group; a table that cannot be read and a group that it lacks are failures of the page."""
        path = Path(self.env.srcdir, TABLE)
        self.env.note_dependency(str(path))
        try:
            terms = load(path)
        except (OSError, ValueError) as error:
            problems.report(self.env, self.lineno, "glossary", str(error))
            return []
        chosen = [term for term in terms if term.group == self.arguments[0]]
        if not chosen:
            groups = ", ".join(dict.fromkeys(term.group for term in terms))
            problems.report(
                self.env, self.lineno, "glossary", f"no group {self.arguments[0]!r}: expected one of {groups}"
            )
            return []
        listed = nodes.definition_list("", *map(self._item, chosen), classes=["glossary"])
        return [addnodes.glossary("", listed, sorted=False)]

    def _item(self, term: Term) -> nodes.definition_list_item:
        source, line = self.get_source_info()
        heads = []
        for number, name in enumerate(term.names["ja"]):
            anchor = f"{term.id}-{number + 1}" if number else term.id
            heads.append(
                make_glossary_term(self.env, [nodes.Text(name)], None, source, line, anchor, self.state.document)
            )
            heads[-1].rawsource = name
        body = nodes.definition()
        self.state.nested_parse(StringList([term.definition], source=source), self.content_offset, body)
        body += nodes.paragraph("", "", *self._other_names(term), classes=["term-names"], translatable=False)
        return nodes.definition_list_item("", *heads, body)

    def _other_names(self, term: Term) -> Iterator[nodes.Node]:
        """Language by language; each part says to a screen reader which language it is in."""
        for number, language in enumerate(code for code in LANGUAGES if code != "ja"):
            text = f"{LANGUAGES[language]}: {BETWEEN.join(term.names[language])}"
            yield nodes.Text(" · " if number else "")
            yield nodes.inline("", text, classes=[f"language-{language}"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive; the book's configuration names this module, for the reason that `execution_page` gives."""
    app.add_directive("terms", Terms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
