"""Exercises, made from the solutions: the same file with holes, as Python and as a notebook, in three languages.

A solution marks what the reader writes:

    # hole: lines
    weights = …
    # end

In the exercise, a comment in the reader's language and `raise NotImplementedError` stand in place of these lines, and
docstrings are in that language, too. A class of mistakes in solutions (a hole without an end, within another, outside a
function, or with a name that the texts do not have) is an `ExerciseError` with file and line.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from attnbook.lab.step import Step
from attnbook.lab.steps import step
from attnbook.lab.texts import Language, say, texts
from attnbook.lab.wrapping import wrapped

CHECK_TAG: Final = "attnbook-check"
"""The tag of the cell that checks: it is no part of what the reader wrote."""

_HOLE: Final = re.compile(r"( *)# hole: *(\S*) *")
_END: Final = re.compile(r" *# end *")


class ExerciseError(ValueError):
    """A solution that no exercise can be made of; the text begins with file and line."""


@dataclass(frozen=True)
class Hole:
    """Lines that the reader writes, without the two marks: from `start` up to, not including, `end`, from 0."""

    name: str
    indent: str
    start: int
    end: int


def heading(key: str, lang: Language) -> str:
    """The step's title, as a report has it."""
    kind = "step" if key.isdecimal() else "capstone" if key == "capstone" else "exercise"
    return say(lang, f"report.{kind}", step=key, title=texts(key).title(lang))


@cache
def exercise_source(key: str, lang: Language) -> str:
    """The Python file that the reader begins with."""
    wanted = step(key)
    how = f"{say(lang, 'exercise.check_file')}\n\n    attnbook lab check --step {wanted.key}"
    opening = "\n\n".join((heading(wanted.key, lang), texts(key).goal(lang), how))
    return _drawn(wanted, lang, opening, keep=False)


@cache
def solution_source(key: str, lang: Language = "en") -> str:
    """The solution as a reader would have it: without marks, its docstrings in a language."""
    wanted = step(key)
    return _drawn(wanted, lang, heading(wanted.key, lang), keep=True)


def solution(key: str | int) -> tuple[Callable[..., Any], ...]:
    """The functions of a step's solution, in the step's order, to be checked as a reader's are."""
    wanted = step(key)
    module = importlib.import_module(f"attnbook.lab.solutions.{wanted.stem}")
    return tuple(getattr(module, name) for name in wanted.functions)


@cache
def exercise_notebook(key: str, lang: Language) -> str:
    """The notebook that the reader begins with, as JSON: the goal, a cell a function, and a cell that checks."""
    wanted = step(key)
    said = texts(key)
    how = say(lang, "exercise.run_cell")
    cells = [_cell("goal", f"# {heading(wanted.key, lang)}\n\n{_joined(said.goal(lang), lang)}\n\n{how}")]
    cells += [_cell(name, text, "code") for name, text in _pieces(exercise_source(key, lang))]
    names = ", ".join(wanted.functions)
    literal = wanted.key if wanted.key.isdecimal() else json.dumps(wanted.key)
    check = f"from attnbook.lab import check\n\ncheck({literal}, {names})"
    cells.append(_cell("check", check, "code", tags=[CHECK_TAG]))
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _drawn(wanted: Step, lang: Language, opening: str, *, keep: bool) -> str:
    """The solution with docstrings in a language; holes filled as they are (`keep`) or open."""
    name = f"{wanted.stem}.py"
    text = (resources.files("attnbook.lab.solutions") / name).read_text(encoding="utf-8")
    text = text.replace("from attnbook.lab.solutions.", "from ")  # of another step: the reader's own file
    return with_holes(text, wanted.key, lang, opening, name=name, keep=keep)


def with_holes(text: str, key: str, lang: Language, opening: str, *, name: str = "solution", keep: bool = False) -> str:
    """A solution's text as an exercise that opens with `opening`; with `keep`, as a solution without marks.

    Raises ExerciseError for marks that do not fit, KeyError for a function or a hole whose text the step lacks.
    """
    lines = text.splitlines()
    found = list(holes(text, name))
    tree = ast.parse(text, name)
    edits: list[tuple[int, int, list[str]]] = []
    for hole in found:
        try:
            said = texts(key).hole(hole.name, lang)
        except KeyError as error:
            raise ExerciseError(f"{name}:{hole.start}: {error.args[0]}") from error
        open_lines = [f"{hole.indent}# {line}".rstrip() for line in wrapped(said, len(hole.indent) + 2)]
        body = lines[hole.start : hole.end] if keep else [*open_lines, f"{hole.indent}raise NotImplementedError"]
        edits.append((hole.start - 1, hole.end + 1, body))
    for start, end, docstring in _docstrings(tree, key, lang, opening, name):
        edits.append((start, end, docstring))
    for start, end, replacement in sorted(edits, reverse=True):
        lines[start:end] = replacement
    return "\n".join(lines) + "\n"


def holes(text: str, name: str = "solution") -> Iterator[Hole]:
    """The holes of a solution, in order. Raises ExerciseError for marks that do not fit."""
    opened: Hole | None = None
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines()):
        if begins := _HOLE.fullmatch(line):
            indent, hole = begins.groups()
            if opened is not None:
                raise ExerciseError(f"{name}:{number + 1}: hole {hole} begins within hole {opened.name}")
            if not hole or hole in seen:
                why = f"a second hole {hole}" if hole else "a hole without a name: write # hole: NAME"
                raise ExerciseError(f"{name}:{number + 1}: {why}")
            if not indent:
                raise ExerciseError(
                    f"{name}:{number + 1}: hole {hole} is outside a function: nothing could raise there"
                )
            seen.add(hole)
            opened = Hole(hole, indent, number + 1, number + 1)
        elif _END.fullmatch(line):
            if opened is None:
                raise ExerciseError(f"{name}:{number + 1}: # end without a hole")
            if number == opened.start:
                raise ExerciseError(f"{name}:{number}: hole {opened.name} has no lines")
            yield Hole(opened.name, opened.indent, opened.start, number)
            opened = None
        elif line.lstrip().startswith(("# hole", "#hole")):
            raise ExerciseError(f"{name}:{number + 1}: expected # hole: NAME, got {line.strip()!r}")
    if opened is not None:
        raise ExerciseError(f"{name}:{opened.start}: hole {opened.name} has no end: write # end below its lines")


def _docstrings(
    tree: ast.Module, key: str, lang: Language, opening: str, name: str
) -> Iterator[tuple[int, int, list[str]]]:
    """First line, line after the last, and the new lines of each docstring of the file."""
    if ast.get_docstring(tree) is None:
        raise ExerciseError(f"{name}:1: no docstring: it is where the exercise tells its goal")
    yield (*_span(tree.body[0]), _docstring(opening, ""))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            said = texts(key).function(node.name, lang) or ast.get_docstring(node) or ""
            yield (*_span(node.body[0]), _docstring(said, " " * node.body[0].col_offset))


def _span(node: ast.stmt) -> tuple[int, int]:
    return node.lineno - 1, node.end_lineno or node.lineno


def _docstring(text: str, indent: str) -> list[str]:
    """The lines of a docstring as Python."""
    first, *rest = wrapped(text.replace("\\", "\\\\").replace('"""', r"\"\"\""), len(indent) + 3)
    if not rest:
        return [f'{indent}"""{first}"""']
    return [f'{indent}"""{first}', *(f"{indent}{line}".rstrip() for line in rest), f'{indent}"""']


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    """The file in cells, a name and a text each: statements that belong together, and each function; no docstring."""
    lines = source.splitlines()
    body = ast.parse(source).body[1:]
    start, number = _span(ast.parse(source).body[0])[1], 0
    for index, node in enumerate(body):
        alone = isinstance(node, ast.FunctionDef | ast.ClassDef)
        following = body[index + 1] if index + 1 < len(body) else None
        if alone or following is None or isinstance(following, ast.FunctionDef | ast.ClassDef):
            end = _span(node)[1]
            number += not alone
            title = node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else f"code-{number}"
            yield title, "\n".join(lines[start:end]).strip("\n")
            start = end


def _joined(text: str, lang: Language) -> str:
    """Without line breaks within Japanese paragraphs, which a browser would draw as spaces."""
    return re.sub(r"(?<=[^\s|])\n(?=[^\s|*`-])", "", text) if lang == "ja" else text


def _cell(name: str, source: str, kind: str = "markdown", tags: list[str] | None = None) -> dict[str, Any]:
    """A cell of a notebook; its id is its name, so that two writings are the same."""
    cell: dict[str, Any] = {"cell_type": kind, "id": re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64]}
    cell["metadata"] = {"tags": tags} if tags else {}
    cell["source"] = source.splitlines(keepends=True)
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell
