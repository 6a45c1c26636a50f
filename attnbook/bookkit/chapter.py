"""A chapter of the book: its code cells, and the source line at which each begins.

A page is a chapter when its front matter says `file_format: mystnb`; every other page is plain MyST and is not run.
Cells are found by MyST-NB's own reader, so that what runs is what is shown.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

KERNEL = "python3"
FRONT_MATTER = f"---\nfile_format: mystnb\nkernelspec:\n  name: {KERNEL}\n---"
"""What a chapter begins with."""


class ChapterError(Exception):
    """A page that can't be read as a chapter; the message begins with file and line."""


@dataclass(frozen=True)
class Cell:
    """A code cell."""

    number: int
    """Counting the chapter's code cells from 1."""
    index: int
    """Position among all cells of the notebook, from 0."""
    line: int
    """The line of the file that holds the first line of its code, from 1."""
    source: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Chapter:
    """A page whose code is run."""

    path: Path
    name: str
    """Relative to the book's folder, without suffix, as Sphinx names documents."""
    shown: str
    """The path as messages give it: the book's folder and what lies below."""
    notebook: NotebookNode
    cells: tuple[Cell, ...]


def chapters(book: Path) -> tuple[list[Chapter], list[ChapterError]]:
    """All chapters below the book's folder in order of their names, and what is wrong with those that can't be read."""
    found: list[Chapter] = []
    errors: list[ChapterError] = []
    for path in _pages(book):
        try:
            chapter = read(path, book)
        except ChapterError as error:
            errors.append(error)
        else:
            if chapter is not None:
                found.append(chapter)
    return found, errors


def _pages(book: Path) -> Iterator[Path]:
    for path in sorted(book.rglob("*.md")):
        below = path.relative_to(book).parts
        # Output, static files, hidden folders and translations' catalogues hold no pages.
        if not any(part.startswith(("_", ".")) for part in below) and path.is_file():
            yield path


def read(path: Path, book: Path) -> Chapter | None:
    """Read a page; None for a plain one. Raises ChapterError for one that can't be read."""
    shown = f"{book.resolve().name}/{path.relative_to(book).as_posix()}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChapterError(f"{shown}:1: can't be read: {error}") from error
    name = path.relative_to(book).with_suffix("").as_posix()
    return from_text(text, path, name, shown)


@functools.cache
def from_text(text: str, path: Path, name: str, shown: str) -> Chapter | None:
    """`read`, for a text that is already in memory; read once in a process, so leave the notebook as it is."""
    front = _front_matter(text, shown)
    if front is None or front.get("file_format") != "mystnb":
        if mistake := misplaced(text):
            raise ChapterError(f"{shown}:{mistake[0]}: {mistake[1]}; begin the file with\n{FRONT_MATTER}")
        line = _first_cell(text)
        if line:
            raise ChapterError(
                f"{shown}:{line}: this page has code cells but no front matter that makes it a chapter, "
                f"so they would never run; begin the file with\n{FRONT_MATTER}"
            )
        return None
    kernel = front.get("kernelspec")
    kernel_name = kernel.get("name") if isinstance(kernel, dict) else None
    if kernel_name != KERNEL:
        raise ChapterError(
            f"{shown}:1: the front matter's kernelspec: expected {{name: {KERNEL}}}, got {kernel_name!r}; "
            f"begin the file with\n{FRONT_MATTER}"
        )
    notebook = _notebook(text, path, shown)
    return Chapter(path, name, shown, notebook, tuple(_cells(notebook, text.splitlines())))


def _front_matter(text: str, shown: str) -> dict[str, Any] | None:
    if not text.startswith("---"):
        return None
    import yaml  # type: ignore[import-untyped]

    lines = text.splitlines()
    end = next((i for i, line in enumerate(lines[1:], 1) if line.startswith(("---", "..."))), None)
    if end is None:
        raise ChapterError(f"{shown}:1: the front matter that begins here has no end: expected a line ---")
    try:
        data = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 2 + mark.line if mark else 1
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ChapterError(f"{shown}:{line}: the front matter is not YAML: {what}") from error
    if data is not None and not isinstance(data, dict):
        raise ChapterError(f"{shown}:2: the front matter: expected keys and values, got {type(data).__name__}")
    return data


_KEY = re.compile(r"^(\w+)\s*:\s*(.*?)\s*$")


def misplaced(text: str) -> tuple[int, str] | None:
    """Line of and fault in front matter that was meant to make the page a chapter and does not; None where none is.

    It is meant when it has the key file_format, or one that is nearly so.
    """
    marked = text.startswith("\ufeff")
    lines = text.removeprefix("\ufeff").splitlines()
    begin = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines or lines[begin].strip() != "---":
        return None
    for number, line in enumerate(lines[begin + 1 :], begin + 2):
        found = _KEY.match(line)
        if line.startswith(("---", "...")):
            break
        if not found or not difflib.get_close_matches(found[1], ["file_format"], cutoff=0.8):
            continue
        if begin or marked:
            why = "begins with a byte-order mark" if marked else "is empty"
            return 1, f"the first line of the file must be --- (line 1 {why})"
        if found[1] != "file_format":
            return number, f"unknown key {found[1]}, did you mean file_format?"
        if found[2].strip("'\"") != "mystnb":
            return number, f"file_format: expected mystnb, got {found[2]!r}"
    return None


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*(.*)$")


def _first_cell(text: str) -> int:
    """The line of the first code cell that is not itself inside a fence (a page may show how to write one); 0: none."""
    opened = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if not match:
            continue
        fence, info = match.groups()
        if not opened:
            if info.startswith("{code-cell}"):
                return number
            opened = fence
        elif fence.startswith(opened) and not info:
            opened = ""
    return 0


@functools.cache
def _reading() -> Any:
    from myst_parser.config.main import MdParserConfig

    # The block syntax that the book uses: it decides what is a cell of its own and what stands inside another block.
    return MdParserConfig(enable_extensions={"colon_fence", "dollarmath", "deflist"})


def _notebook(text: str, path: Path, shown: str) -> NotebookNode:
    from myst_nb.core.read import (  # type: ignore[import-untyped]
        MystMetadataParsingError,
        read_myst_markdown_notebook,
    )

    try:
        notebook: NotebookNode = read_myst_markdown_notebook(
            text, config=_reading(), add_source_map=True, path=str(path)
        )
    except MystMetadataParsingError as error:
        match = re.search(r"at line (\d+)", str(error))
        raise ChapterError(f"{shown}:{match[1] if match else 1}: {error}") from error
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"  # nbformat draws them at random: two builds would differ
    return notebook


def _cells(notebook: NotebookNode, lines: list[str]) -> Iterator[Cell]:
    number = 0
    for index, cell in enumerate(notebook.cells):
        if cell["cell_type"] != "code":
            continue
        number += 1
        source = cell["source"]
        line = _line_of(source.splitlines(), lines, notebook.metadata["source_map"][index])
        tags = cell["metadata"].get("tags", [])
        yield Cell(number, index, line, source, tuple(tags) if isinstance(tags, list) else (str(tags),))


def _line_of(code: list[str], lines: list[str], start: int) -> int:
    """The line (from 1) at which a cell's code begins: after the fence at `start` (from 0) options may stand first."""
    for line in range(start, len(lines) - len(code) + 1):
        if lines[line : line + len(code)] == code:
            return line + 1
    return start + 1
