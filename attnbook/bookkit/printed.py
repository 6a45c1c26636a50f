"""A long list of printed measurements folds away below its cell: it is evidence, and the text goes on without it.

`print(found)` writes a line a measurement. A few of them are read at a glance; twenty would push the explanation off
the screen, and each number that the text uses shows its measurement in place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from attnbook.bookkit.folded import folded, folded_title

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SHOWN: Final = 5
"""So many measurements stay in sight; a longer list folds."""

_MEASUREMENT: Final = re.compile(r"[a-z]\w*(\.\w+)+ = \S.*")
_LABELS: Final = {"ja": "測定値の一覧（{count}件）", "ko": "측정값 목록 ({count}개)", "en": "All {count} measurements"}


class FoldPrinted(SphinxPostTransform):
    """Split the measurements off the end of a cell's printed output and fold them, for HTML only."""

    default_priority = 300
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """See the class."""
        label = _LABELS.get(self.config.language or "en", _LABELS["en"])
        for block in list(self.document.findall(nodes.literal_block)):
            if "stream" in block["classes"]:
                lines = block.astext().splitlines(keepends=True)
                start = _first_measurement(lines)
                if len(lines) - start > SHOWN:
                    _fold(block, "".join(lines[:start]), "".join(lines[start:]), label.format(count=len(lines) - start))


def _first_measurement(lines: list[str]) -> int:
    """The index from which on all lines are measurements."""
    start = len(lines)
    while start and _MEASUREMENT.fullmatch(lines[start - 1].rstrip()):
        start -= 1
    return start


def _fold(block: nodes.literal_block, shown: str, hidden: str, label: str) -> None:
    """Replace a block by what stays in sight, if anything, and a folded block of the rest."""
    parts: list[nodes.Node] = []
    if shown:
        kept = block.deepcopy()
        kept.rawsource, kept.children = shown, []
        kept += nodes.Text(shown)
        parts.append(kept)
    rest = block.deepcopy()
    rest.rawsource, rest.children = hidden, []
    rest += nodes.Text(hidden)
    title = folded_title("", label, classes=["admonition-title"])
    parts.append(folded("", title, rest, classes=["admonition", "hide", "printed"]))
    # Not `replace_self`, which would hand the block's classes to the first part.
    place = block.parent.index(block)
    block.parent[place : place + 1] = parts


def setup(app: Sphinx) -> None:
    """Add the transform."""
    app.add_post_transform(FoldPrinted)
