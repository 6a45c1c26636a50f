"""The page at the root of what a host is given: it leads on to the book in its source language.

Each language has a folder of its own, so without it a host would show a list of folders there, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attnbook.claims.entries import write_whole

SOURCE: Final = "ja"
"""The language that the book is written in."""

_WORDS: Final = {"ja": "本を開く", "ko": "책 열기", "en": "Open the book"}

_PAGE: Final = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="0; url={address}">
<title>{words}</title>
</head>
<body>
<p><a href="{address}">{words}</a></p>
</body>
</html>
"""


def write(html: Path, languages: Sequence[str]) -> None:
    """Write `index.html` in the folder that holds the languages' folders; `languages` are those just built.

    It leads to the source language where that has been built at any time, or to the first of `languages`. Raises
    OSError where it can't be written; the file is whole at every moment.
    """
    language = next((name for name in (SOURCE, *languages) if (html / name / "index.html").is_file()), None)
    if language is None:
        return
    words = _WORDS.get(language, _WORDS["en"])
    text = _PAGE.format(language=language, address=f"{language}/index.html", words=words)
    page = html / "index.html"
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return
    write_whole(page, text)
