"""The book's Sphinx parts beside claims: chapter execution, maths, figures, lints, site."""

from __future__ import annotations

import zlib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Each is a module here with a `setup(app)`; loaded only by Sphinx, so that a chapter's kernel can import
# `attnbook.bookkit.figures` without it.
_PARTS = (
    "reader",
    "finished",
    "leftover",
    "maths",
    "plots",
    "emphasis",
    "folded",
    "printed",
    "line_breaks",
    "bibliography",
    "records_page",
    "search",
    "site",
    "theme_words",
    "lints",
    "built_lints",
    "unchecked",
    "api_pages",
    "api_sources",
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add every part to a Sphinx application."""
    for part in _PARTS:
        import_module(f"attnbook.bookkit.{part}").setup(app)
    return {"version": "1", "env_version": _code_version(), "parallel_read_safe": True, "parallel_write_safe": True}


def _code_version() -> int:
    """Changes with the code here: what the lints found on a page is kept, and other lints must read it again."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py"))))
