"""Where the roles stand in a source file, line by line.

The document tree knows the line of a block, not of a role, and a role that a parser drops (in Markdown's image alt
text) leaves no trace in it. So the file is searched too: each role found is matched with what became of it in the
tree, which gives every claim its exact line, and what is left over was lost.

`attnbook ledger --update` reads sources with this where neither Sphinx nor docutils is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROLES = ("claim", "holds")
_NAMES = "|".join(ROLES)
_ROLE = re.compile(
    # A backtick before it opens code, in which the role is an example, unless it ends another role.
    rf"(?:(?<!`)|(?<=[>A-Za-z0-9]`))\{{(?P<myst>{_NAMES})\}}"
    rf"(?P<ticks>`+)(?P<content>(?:(?!\n[ \t]*\n).)*?)(?P=ticks)(?!`)"
    rf"|:(?P<rst>{_NAMES}):`(?P<rst_content>(?:(?!\n[ \t]*\n)[^`])*)`",
    re.DOTALL,
)
LITERAL = re.compile(rf"\{{(?:{_NAMES})\}}|:(?:{_NAMES}):`")
"""A role printed instead of run."""
_IMAGE = re.compile(r"!\[(?P<alt>(?:[^\[\]\n]|\[[^\[\]\n]*\])*)\](?=[(\[])")
_FRONT_MATTER = re.compile(r"---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A role as it stands in a source file (line 1-based), or in text that was meant to be read."""

    role: str
    raw: str
    line: int = 0
    place: str = ""
    """Where roles are known to vanish: "front matter" or "alt text"; empty elsewhere."""

    @property
    def key(self) -> tuple[str, str]:
        """What tells roles apart when they are matched; equal roles are matched in order."""
        return self.role, self.raw


def roles_in(text: str) -> list[Written]:
    """Every role written in a text, in MyST's form and in reStructuredText's, in order."""
    front = _FRONT_MATTER.match(text)
    front_end = front.end() if front else 0
    alts = [match.span("alt") for match in _IMAGE.finditer(text)]
    found = []
    for match in _ROLE.finditer(text):
        place = "front matter" if match.start() < front_end else ""
        if any(start <= match.start() < end for start, end in alts):
            place = "alt text"
        content = match["content"] if match["myst"] else match["rst_content"]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Written(match["myst"] or match["rst"], " ".join(content.split()), line, place))
    return found


def read_source(path: Path) -> str:
    """A page's source as text whose line numbers are the file's; of an .ipynb, the text lines inside its JSON."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""
    return "\n".join(map(_json_line, text.split("\n"))) if path.suffix == ".ipynb" else text


def _json_line(line: str) -> str:
    candidate = line.strip().removesuffix(",")
    if not candidate.startswith('"'):
        return ""
    try:
        value = json.loads(candidate)
    except ValueError:
        return ""
    return value.replace("\n", " ") if isinstance(value, str) else ""


def match_up(seen: Sequence[Written], written: Sequence[Written]) -> tuple[list[int], list[Written]]:
    """The exact line of each role seen in the tree (0 where it is not in this file), and the roles that were lost.

    A role seen carries the line of its block, which is never after the role itself: it takes the first equal one
    written there or later.
    """
    free: dict[tuple[str, str], list[Written]] = {}
    for role in written:
        free.setdefault(role.key, []).append(role)
    lines = [0] * len(seen)
    for index in sorted(range(len(seen)), key=lambda index: seen[index].line):
        left = free.get(seen[index].key)
        if left:
            chosen = next((role for role in left if role.line >= seen[index].line), left[0])
            left.remove(chosen)
            lines[index] = chosen.line
    lost = [role for left in free.values() for role in left]
    return lines, sorted(lost, key=lambda role: role.line)


def line_of(lines: Sequence[str], snippets: Iterable[str], start: int) -> int:
    """The first line (1-based) from `start` on that holds a snippet, the first snippet that is found; else `start`."""
    for snippet in snippets:
        for number in range(max(start, 1), len(lines) + 1):
            if snippet and snippet in lines[number - 1]:
                return number
    return start
