"""`{records}`: what was measured elsewhere, how long ago, and whether its sources still say the same.

    ```{records} kernels
    ```

shows every record of the book's folder `records` behind which a source of `attnbook.kernels` stands, or says that there
is none yet. Nothing of it is typed: age and staleness are calculated whenever the book is built, so the page is read
again by every build.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from attnbook.bookkit import problems
from attnbook.claims.labels import number
from attnbook.claims.ledger_page import ledger_entry
from attnbook.records import Record, RecordError

if TYPE_CHECKING:
    from sphinx.application import Sphinx

WORDS: Final[dict[str, dict[str, str]]] = {
    "ja": {
        "none": "attnbook.{room} を測った記録は、まだ一つもありません。", "device": "装置", "date": "日付",
        "today": "今日", "age": "{days} 日前", "versions": "版", "command": "コマンド", "state": "状態",
        "fresh": "いまのコードの値", "stale": "古い。測ったあとで変わったファイル：{files}",
        "missing": "測れなかったもの", "value": "測定", "number": "値",
    },
    "ko": {
        "none": "attnbook.{room}을(를) 측정한 기록은 아직 하나도 없습니다.", "device": "장치", "date": "날짜",
        "today": "오늘", "age": "{days}일 전", "versions": "버전", "command": "명령", "state": "상태",
        "fresh": "지금 코드의 값", "stale": "오래됨. 측정한 뒤 바뀐 파일: {files}", "missing": "측정하지 못한 것",
        "value": "측정", "number": "값",
    },
    "en": {
        "none": "No record of attnbook.{room} exists yet.", "device": "device", "date": "date",
        "today": "today", "age": "{days} days ago", "versions": "versions", "command": "command", "state": "state",
        "fresh": "the values of the code as it is", "stale": "stale: changed since then: {files}",
        "missing": "not measured", "value": "measured", "number": "value",
    },
}  # fmt: skip


class records_table(nodes.General, nodes.Element):
    """Where the records go. Attribute: room."""


class Records(SphinxDirective):
    """The `{records}` directive; see the module."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """A placeholder; a record that cannot be read is a failure of the page."""
        self.env.note_reread()
        try:
            list(of_room(Path(self.env.srcdir), self.arguments[0]))
        except RecordError as error:
            problems.report(self.env, self.lineno, "record", str(error))
        return [records_table(room=self.arguments[0])]


def of_room(book: Path, room: str) -> Iterator[Record]:
    """The records of a book behind which a source of that room of the package stands, in the order of their names.

    Raises RecordError for one that cannot be read.
    """
    for path in sorted((book / "records").glob("*.json")):
        if path.stem.endswith(".unfinished"):  # of a run that goes on, or was killed
            continue
        record = Record.load(path)
        if any(source.startswith((f"attnbook/{room}/", f"attnbook/{room}.")) for source in record.sources):
            yield record


def fill(app: Sphinx, doctree: nodes.document, _docname: str) -> None:
    """Replace each placeholder, at the moment the page is written: it is no text for translators."""
    language = str(app.config.language or "en").replace("-", "_").partition("_")[0]
    say = WORDS.get(language, WORDS["en"])
    for place, placeholder in enumerate(list(doctree.findall(records_table))):
        room = placeholder["room"]
        try:
            found = list(of_room(Path(app.srcdir), room))
        except RecordError:
            found = []  # reported when the page was read
        drawn: list[nodes.Node] = [
            table for index, record in enumerate(found) for table in _drawn(record, say, f"records-{place}-{index}")
        ]
        none = nodes.paragraph("", say["none"].format(room=room), classes=["records-none"])
        placeholder.replace_self(drawn or [none])


def _drawn(record: Record, say: dict[str, str], name: str) -> Iterator[nodes.Node]:
    """Two tables: where the values are from, and the values."""
    stale = record.stale()
    state = say["stale"].format(files=", ".join(stale)) if stale else say["fresh"]
    rows: list[tuple[str, nodes.Node]] = [
        (say["device"], nodes.Text(record.device)),
        (say["date"], nodes.Text(f"{record.date} ({age(record.date, say)})")),
        (say["state"], nodes.strong("", state) if stale else nodes.Text(state)),
        (say["versions"], nodes.Text(", ".join(f"{key} {version}" for key, version in record.versions.items()))),
        (say["command"], nodes.literal("", record.command)),
    ]
    if record.missing:
        lacks = ", ".join(f"{key} ({why})" for key, why in record.missing.items())
        rows.append((say["missing"], nodes.Text(lacks)))
    yield _table(rows, [], name)
    values = [
        (key, nodes.Text(f"{number(held.value)} {held.unit if held.unit != 'ratio' else '×'}".rstrip()))
        for key, held in record.values.items()
    ]
    yield _table(values, [say["value"], say["number"]], f"{name}-values")


def age(date: str, say: dict[str, str], today: datetime.date | None = None) -> str:
    """How long ago an ISO date was, in words."""
    days = ((today or datetime.datetime.now(datetime.UTC).date()) - datetime.date.fromisoformat(date)).days
    return say["age"].format(days=days) if days > 0 else say["today"]


def _table(rows: Sequence[tuple[str, nodes.Node]], head: Sequence[str], name: str) -> nodes.table:
    """Two columns, the first of which says what the row is about."""
    group = nodes.tgroup(cols=2)
    group += [nodes.colspec(colwidth=30), nodes.colspec(colwidth=70)]
    if head:
        group += nodes.thead("", nodes.row("", *(ledger_entry("", nodes.paragraph("", x), scope="col") for x in head)))
    body = nodes.tbody()
    for about, content in rows:
        body += nodes.row(
            "",
            ledger_entry("", nodes.paragraph("", about), scope="row"),
            nodes.entry("", nodes.paragraph("", "", content)),
        )
    group += body
    return nodes.table("", group, classes=["records"], ids=[name])


def setup(app: Sphinx) -> None:
    """Add the directive and what fills it."""
    app.add_node(records_table)
    app.add_directive("records", Records)
    app.connect("doctree-resolved", fill)
