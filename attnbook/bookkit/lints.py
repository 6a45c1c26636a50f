"""Lints of the pages' sources: what goes wrong silently in the built page, found without building or running anything.

    python -m attnbook.bookkit.lints book

Prints each finding as `book/03-scaling.md:41: …` and exits 1 if there is any, 2 if it could not look. A Sphinx build
reports the same findings, with all others.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attnbook.bookkit import progress
from attnbook.bookkit.chapter import misplaced

if TYPE_CHECKING:
    from markdown_it.token import Token
    from sphinx.application import Sphinx

CELL_LINES: Final = 10
LINE_WIDTH: Final = 88
EXTENSIONS: Final = ("attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath")
"""MyST's extensions, as book/conf.py has them."""

_DIRECTIVE = re.compile(r"\{([\w:.+-]+)\}\s*(.*)")
_CHAPTER = re.compile(r"\d\d-")
# Directives whose content is no Markdown: nothing in there is prose.
_OPAQUE = {"code", "code-block", "literalinclude", "toctree", "math", "bibliography", "raw", "eval-rst"}
_REMOVED = re.compile(r"\bremove-(?:output|cell)s?\b")
_PICTURES = {"figure", "image", "plot"}


@dataclass(frozen=True, order=True)
class Finding:
    """Something wrong in a page's source; lines count from 1."""

    line: int
    message: str


def check(text: str, *, chapter: bool = False, cell_lines: int = CELL_LINES) -> list[Finding]:
    """All findings in a page's source. `chapter` says that it must have the front matter of one."""
    return sorted(_Page(text, cell_lines).findings(chapter))


def is_chapter(name: str) -> bool:
    """Is a page of this name (without suffix) a chapter of the book, to be executed? They begin with their number.

    Such a page needs a chapter's front matter, as does every page with code cells; no other does.
    """
    return _CHAPTER.match(name) is not None


class _Page:
    """One page's source while it is looked through."""

    def __init__(self, text: str, cell_lines: int) -> None:
        self.lines = text.splitlines()
        self.text = text
        self.cell_lines = cell_lines
        self.parser = _parser()

    def findings(self, chapter: bool) -> Iterator[Finding]:
        tokens = self.parser.parse(self.text)
        front = tokens[0].content if tokens and tokens[0].type == "front_matter" else ""
        executed = bool(re.search(r"^file_format:\s*mystnb\b", front, re.MULTILINE))
        cells = any(token.type == "fence" and token.info.startswith("{code-cell}") for token in tokens)
        if not executed:
            if mistake := misplaced(self.text):
                yield Finding(*mistake)
            elif chapter or cells:
                why = "its code cells are not run" if cells else "a page named NN-… needs it"
                yield Finding(
                    1,
                    f"no front matter of a chapter, and {why}: begin the page with lines ---, file_format: mystnb, "
                    "kernelspec: {name: python3}, ---",
                )
        yield from self._block(tokens, 0)

    def _block(self, tokens: Sequence[Token], offset: int) -> Iterator[Finding]:
        """The findings in a sequence of block tokens whose first line is line `offset` + 1 of the page."""
        for index, token in enumerate(tokens):
            line = (token.map[0] if token.map else 0) + offset + 1
            if token.type == "heading_open":
                if index == 0 or tokens[index - 1].type != "myst_target":
                    title = tokens[index + 1].content
                    yield Finding(line, f"heading {title!r} has no label: put (some-label)= on the line before it")
            elif token.type == "inline":
                yield from _inline(token, line)
            elif token.type == "code_block":
                yield Finding(
                    line, "indented text becomes code and is not checked; use a ``` fence or take out the indent"
                )
            elif token.type in ("fence", "colon_fence"):
                yield from self._fence(token, line)

    def _fence(self, token: Token, line: int) -> Iterator[Finding]:
        directive = _DIRECTIVE.match(token.info)
        if directive is None:
            return
        name, argument = directive.groups()
        options, content, skipped = _options(token.content)
        if name == "code-cell":
            if found := _REMOVED.search("\n".join(token.content.splitlines()[:skipped])):
                hidden = found[0].replace("remove", "hide")
                yield Finding(line, f"code cell tagged {found[0]}: what it measures reaches no page; tag it {hidden}")
            yield from self._cell(content, line + 1 + skipped)
        elif name in _PICTURES and not options.get("alt", "").strip():
            yield Finding(line, f"{{{name}}} {argument} has no alternative text: say in :alt: what it shows")
        if name not in _OPAQUE and name != "code-cell":
            yield from self._block(self.parser.parse("\n".join(content)), line + skipped)

    def _cell(self, content: list[str], line: int) -> Iterator[Finding]:
        code = [row for row in content if row.strip()]
        if len(code) > self.cell_lines:
            yield Finding(
                line,
                f"code cell of {len(code)} lines, at most {self.cell_lines}: split it, or move what it defines into "
                "attnbook (an experiment, or a function shown by name) and import it here",
            )
        for number, row in enumerate(content):
            if len(row) > LINE_WIDTH:
                yield Finding(line + number, f"code line of {len(row)} characters, at most {LINE_WIDTH}: break it")


def _inline(token: Token, line: int) -> Iterator[Finding]:
    """Line breaks between Japanese characters, and images without alternative text, in one run of text."""
    rows = token.content.split("\n")
    for number, (row, following) in enumerate(itertools.pairwise(rows)):
        before, after = row.rstrip(), following.lstrip()
        if before and after and _is_japanese(before[-1]) and _is_japanese(after[0]):
            yield Finding(
                line + number,
                f"line break between {before[-1]!r} and {after[0]!r}: a browser draws it as a space; "
                "keep a paragraph on one line",
            )
    for child in token.children or ():
        if child.type == "image" and not child.content.strip():
            place = line + token.content[: max(token.content.find(str(child.attrs.get("src", ""))), 0)].count("\n")
            yield Finding(place, f"image {child.attrs.get('src')} has no alternative text: ![say what it shows](…)")


def _is_japanese(character: str) -> bool:
    """Kana, ideographs and full-width punctuation: text that is written without spaces. Hangul is not."""
    from attnbook.bookkit.emphasis import is_east_asian

    return is_east_asian(character) and not ("가" <= character <= "힣" or "ᄀ" <= character <= "ᇿ")


def _options(content: str) -> tuple[dict[str, str], list[str], int]:
    """A directive's options, its content, and how many lines come before the content."""
    rows = content.splitlines()
    options: dict[str, str] = {}
    index, key = 0, ""
    if rows and rows[0].strip() == "---":
        end = next((i for i, row in enumerate(rows[1:], 1) if row.strip() == "---"), len(rows) - 1)
        for row in rows[1:end]:
            name, separator, value = row.partition(":")
            if separator and not row.startswith((" ", "\t")):
                options[name.strip()] = value.strip(" |>'\"") or "|"
        index = end + 1
    while index < len(rows):
        if found := re.match(r":([\w-]+):\s*(.*)", rows[index]):
            key = found[1]
            options[key] = found[2]
        elif key and rows[index].startswith((" ", "\t")) and rows[index].strip():
            options[key] += " " + rows[index].strip()
        else:
            break
        index += 1
    while index < len(rows) and not rows[index].strip():
        index += 1
    return options, rows[index:], index


def _parser() -> Any:
    from markdown_it.renderer import RendererHTML
    from myst_parser.config.main import MdParserConfig
    from myst_parser.parsers.mdit import create_md_parser

    return create_md_parser(MdParserConfig(enable_extensions=set(EXTENSIONS)), RendererHTML)


def pages(book: Path) -> list[Path]:
    """The Markdown pages of a book, without those below folders that hold no source."""
    return [
        path
        for path in sorted(book.rglob("*.md"))
        if not any(part.startswith(("_", ".")) for part in path.relative_to(book).parts[:-1])
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module."""
    progress.never_refuse()
    parser = argparse.ArgumentParser(prog="python -m attnbook.bookkit.lints", description="Lint the pages of a book.")
    parser.add_argument("paths", nargs="+", type=Path, help="the book's folder, or single pages")
    parser.add_argument(
        "--cell-lines", type=int, default=CELL_LINES, help="lines a code cell may have (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    count = 0
    for path in options.paths:
        if not path.exists():
            print(f"{path}: no such folder or page", file=sys.stderr)
            return 2
        for page in pages(path) if path.is_dir() else [path]:
            text = page.read_text(encoding="utf-8")
            for finding in check(text, chapter=is_chapter(page.stem), cell_lines=options.cell_lines):
                print(f"{page}:{finding.line}: {finding.message}")
                count += 1
    if count:
        print(f"{count} finding{'s' if count > 1 else ''}")
    return 1 if count else 0


def _report(app: Sphinx, docname: str, content: list[str]) -> None:
    """Report a page's findings when Sphinx reads it."""
    from attnbook.bookkit import problems

    if app.env.doc2path(docname).suffix != ".md":
        return
    chapter = is_chapter(docname.rsplit("/", 1)[-1])
    for finding in check(content[0], chapter=chapter, cell_lines=app.config.bookkit_cell_lines):
        problems.report(app.env, finding.line, "lint", finding.message, docname)


def setup(app: Sphinx) -> None:
    """Lint every page as it is read."""
    app.add_config_value("bookkit_cell_lines", CELL_LINES, "env", int)
    app.connect("source-read", _report, priority=100)  # before anybody changes the text


if __name__ == "__main__":
    sys.exit(main())
