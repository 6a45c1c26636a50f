"""What translators see: each message that holds claims gets a comment in the `.pot` with ids and accepted intervals.

Sphinx writes the templates; the comments are put into them afterwards, and nothing else of a file is touched.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path

from babel.messages import pofile
from sphinx.application import Sphinx
from sphinx.builders.gettext import MessageCatalogBuilder
from sphinx.util import logging
from sphinx.util.i18n import docname_to_domain

from attnbook.claims.domain import claims_domain
from attnbook.claims.entries import LedgerEntry, write_whole

LOGGER = logging.getLogger(__name__)
_DATE = re.compile(r'^"POT-Creation-Date:.*$', re.MULTILINE)


class Templates:
    """The templates of one run of the gettext builder."""

    def __init__(self) -> None:
        self._before: dict[Path, tuple[str, int]] = {}

    def remember(self, app: Sphinx) -> None:
        """Keep the templates of the last run. Handles `builder-inited`."""
        self._before.clear()
        if isinstance(app.builder, MessageCatalogBuilder):
            for path in Path(app.outdir).rglob("*.pot"):
                self._before[path] = path.read_text(encoding="utf-8"), path.stat().st_mtime_ns

    def finish(self, app: Sphinx, exception: Exception | None) -> None:
        """Put the comments in. A template that differs from the last in its date alone stays as it was.

        Handles `build-finished`.
        """
        if exception is not None or not isinstance(app.builder, MessageCatalogBuilder):
            return
        for path, comments in _comments(app).items():
            if not path.is_file():
                continue
            text = with_comments(path.read_text(encoding="utf-8"), comments)
            old, changed = self._before.get(path, ("", 0))
            try:
                if _DATE.sub("", old) == _DATE.sub("", text):
                    write_whole(path, old)
                    os.utime(path, ns=(changed, changed))
                else:
                    write_whole(path, text)
            except OSError as error:
                app.statuscode = 1
                LOGGER.error("%s: no comments for translators: %s", path.name, error.strerror, type="claims")


def with_comments(template: str, comments: Mapping[str, list[str]]) -> str:
    """A template with extracted comments (`#. …`) above the messages named, in place of those of ours it has."""
    catalogue = pofile.read_po(io.BytesIO(template.encode()))
    lines = template.split("\n")
    at: dict[int, list[str]] = {}
    for message in catalogue:
        if isinstance(message.id, str) and message.id in comments and message.lineno:
            start = message.lineno - 1
            while start > 0 and lines[start - 1].startswith("#"):
                start -= 1
            at[start] = [f"#. {comment}" for comment in comments[message.id]]
    result: list[str] = []
    for number, line in enumerate(lines):
        result += at.get(number, [])
        if not line.startswith(("#. claim ", "#. holds ")):
            result.append(line)
    return "\n".join(result)


def comment(role: str, ident: str, text: str, entry: LedgerEntry | None) -> str:
    """What a translator must know of one claim."""
    if role == "holds":
        return f"holds {ident}: a statement that was measured to be true; keep its meaning"
    if entry is None or not entry.accepts.text:
        return f"claim {ident}: write the same number as {text}"
    return f"claim {ident} accepts {entry.accepts.text}; write the same number as {text}"


def _comments(app: Sphinx) -> dict[Path, dict[str, list[str]]]:
    domain = claims_domain(app.env)
    judged = {(entry.id, entry.text): entry for entry in domain.entries()}
    templates: dict[Path, dict[str, list[str]]] = {}
    for docname, message in domain.messages():
        path = Path(app.outdir) / f"{docname_to_domain(docname, app.config.gettext_compact)}.pot"
        said = [comment(role, ident, text, judged.get((ident, text))) for role, ident, text in message.claims]
        templates.setdefault(path, {})[message.text] = list(dict.fromkeys(said))
    return templates
