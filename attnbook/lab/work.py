"""The files that a reader works in, checked: which of them, each in a process of its own, and the result kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import decode_source
from pathlib import Path

from attnbook.lab.checking import check_code
from attnbook.lab.folder import State, StepStatus, keep, status
from attnbook.lab.judge import Finding
from attnbook.lab.notebook import cell_and_line, notebook_source
from attnbook.lab.progress import FolderError
from attnbook.lab.report import Report
from attnbook.lab.steps import step


@dataclass(frozen=True)
class Work:
    """A file to be checked: the step's key, and its name below the folder."""

    key: str
    name: str


def chosen(folder: Path, keys: Sequence[str] = ()) -> list[Work]:
    """The files to check: those that were edited, of the steps named or of all.

    A step that is named is checked in any case: where neither of its files was edited, the first that is there.
    Raises FolderError where there is no folder, or no file of a step that is named; KeyError for an unknown step.
    """
    found = {held.key: held for held in status(folder)}
    wanted = [step(key).key for key in keys] or list(found)
    works = [work for key in dict.fromkeys(wanted) for work in _of_step(found[key])]
    for key in wanted if keys else ():
        if not any(work.key == key for work in works):
            names = [file.name for file in found[key].files]
            there = [file.name for file in found[key].files if file.state is not State.MISSING]
            if not there:
                raise FolderError("no_files", folder=folder, names=", ".join(names))
            works.append(Work(key, there[0]))
    return works


def _of_step(held: StepStatus) -> Iterator[Work]:
    for file in held.files:
        if file.state not in (State.MISSING, State.UNTOUCHED):
            yield Work(held.key, file.name)


def check_work(folder: Path, work: Work, *, lang: str | None = None, seconds: float | None = None) -> Report:
    """Check one file. seconds: the limit of one call, in place of the step's own.

    Raises OSError where the file can't be read, NotebookError, SyntaxError or UnicodeDecodeError where it is none.
    """
    wanted, path = step(work.key), folder / work.name
    if seconds is not None:
        wanted = replace(wanted, parts=tuple(replace(part, seconds=seconds) for part in wanted.parts))
    notebook = path.suffix == ".ipynb"
    source = notebook_source(path) if notebook else decode_source(path.read_bytes())
    report = check_code(wanted, {"source": source, "file": path.name}, folder=path.resolve().parent, lang=lang)
    return _in_cells(report, path) if notebook else report


def keep_result(folder: Path, work: Work, report: Report, digest: str) -> None:
    """Keep what a check of a file with that digest found. Raises FolderError, OSError where it can't be kept."""
    keep(folder, work.name, digest, ok=report.ok, mistakes=report.mistakes)


def _in_cells(report: Report, path: Path) -> Report:
    """Lines of the code that was read together become lines of the notebook's cells."""
    results = tuple(
        replace(result, finding=_placed(result.finding, path)) if result.finding is not None else result
        for result in report.results
    )
    return replace(report, results=results)


def _placed(finding: Finding, path: Path) -> Finding:
    line = finding.details.get("line", "")
    place = cell_and_line(path, int(line)) if line.isdecimal() else None
    if place is None:
        return finding
    return replace(finding, details={**finding.details, "cell": str(place[0]), "line": str(place[1])})
