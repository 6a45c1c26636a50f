"""What a reader wrote in a notebook, read back as Python: the code cells in order, without magics and without checks.

The file is read as JSON, so that Jupyter need not be installed where it is checked.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from attnbook.lab.exercise import CHECK_TAG

_MAGIC: Final = re.compile(r"(\s*)(?:[%!?].*|.*\?\??\s*|[\w, ]+=\s*[%!].*)")
_OURS: Final = ("check", "hint", "solution")


class NotebookError(ValueError):
    """A file that is no notebook; the text begins with its path."""


class CodeCell(NamedTuple):
    """A code cell: its number among the code cells from 1, and its code."""

    number: int
    source: str


def notebook_source(path: Path) -> str:
    """All that the reader wrote, as one Python text; see the module. Raises NotebookError, OSError."""
    return _joined(code_cells(path))


def code_in(text: str) -> str:
    """`notebook_source` of a notebook's text. Raises NotebookError."""
    return _joined(_cells(text, "the notebook"))


def _joined(cells: Iterable[CodeCell]) -> str:
    return "\n\n".join(cell.source for cell in cells) + "\n"


def cell_and_line(path: Path, line: int) -> tuple[int, int] | None:
    """Number of the code cell and line in it (both from 1) of a line of `notebook_source`; None between cells."""
    first = 1
    for cell in code_cells(path):
        count = len(cell.source.splitlines()) or 1
        if first <= line < first + count:
            return cell.number, line - first + 1
        first += count + 1
    return None


def code_cells(path: Path) -> list[CodeCell]:
    """The reader's code cells. Raises NotebookError for a file that is no notebook, OSError where it can't be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise NotebookError(f"{path}: not a notebook: {error}") from error
    return _cells(text, str(path))


def _cells(text: str, place: str) -> list[CodeCell]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise NotebookError(f"{place}: not a notebook: {error}") from error
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotebookError(f"{place}: not a notebook of format 4: expected a list of cells")
    return list(_code(cells, place))


def _code(cells: list[dict[str, Any]], place: str) -> Iterator[CodeCell]:
    number = 0
    for cell in cells:
        if cell.get("cell_type") != "code":
            continue
        number += 1
        metadata = cell.get("metadata")
        tags = metadata.get("tags", []) if isinstance(metadata, dict) else []
        source = cell.get("source", "")
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise NotebookError(f"{place}: code cell {number}: expected a text as its source")
        if CHECK_TAG not in tags:
            yield CodeCell(number, without_checks(without_magics(source)).rstrip("\n"))


def without_magics(source: str) -> str:
    """A cell's code without what only IPython understands; lines keep their places.

    A cell magic (`%%time`) takes its cell along where the cell is not Python below it.
    """
    if _is_python(source):
        return source
    lines = source.splitlines()
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return "\n".join("" for _ in lines)
    for index, line in enumerate(lines):
        if found := _MAGIC.fullmatch(line):
            lines[index] = f"{found[1]}pass"
    changed = "\n".join(lines)
    # A line of an expression over several lines may begin with %: what isn't Python either way stays as it was.
    return changed if _is_python(changed) else source


def without_checks(source: str) -> str:
    """A cell's code without calls of the lab itself, wherever the reader put them; lines keep their places."""
    if not _is_python(source):
        return source
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if _is_ours(node):
            end = node.end_lineno or node.lineno
            lines[node.lineno - 1 : end] = ["pass", *("" for _ in range(node.lineno, end))]
    return "\n".join(lines)


def _is_ours(node: ast.stmt) -> bool:
    """Does a statement import from the lab, or call one of its functions and do nothing else?"""
    match node:
        case ast.ImportFrom(module=str(module)):
            return module == "attnbook.lab" or module.startswith("attnbook.lab.")
        case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
            while isinstance(call.func, ast.Name) and call.func.id == "print" and len(call.args) == 1:
                if not isinstance(call.args[0], ast.Call):
                    return False
                call = call.args[0]
            return isinstance(call.func, ast.Name) and call.func.id in _OURS
    return False


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
