"""`attnbook lab`: start a folder of exercises, check what was written, see how far it is, take a hint.

Exit status 1 where the check found something wrong, 2 where it lacks what it needs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attnbook.cli import COULD_NOT_RUN, FINE, FOUND, CannotRun, print_json

if TYPE_CHECKING:
    from attnbook.lab.folder import FileStatus, StepStatus
    from attnbook.lab.report import Report
    from attnbook.lab.texts import Language
    from attnbook.lab.work import Work

FOLDER: Final = "attnbook-lab"
"""Where the lab is worked in, unless another folder is named or the current one is a folder of the lab."""

INSTALL: Final = "pip install 'attnbook[lab]'"


def main(arguments: Sequence[str]) -> int:
    """Run one of the four commands."""
    options = _options(arguments)
    try:
        return _run(options)
    except ModuleNotFoundError as error:
        if error.name in ("numpy", "cloudpickle"):
            raise CannotRun(f"this needs {error.name}, which is not installed: {INSTALL}") from error
        raise


def _run(options: argparse.Namespace) -> int:
    from attnbook.lab.progress import FolderError
    from attnbook.lab.steps import FILES
    from attnbook.lab.texts import language, say

    lang = language(options.lang)
    for key in options.step:
        if key not in FILES:
            raise CannotRun(say(lang, "folder.no_step", step=key, steps=", ".join(FILES)))
    try:
        folder = Path(options.folder or _folder(options.command))
        command = {"start": _start, "check": _check, "status": _status, "hint": _hint}[options.command]
        return command(folder, options, lang)
    except FolderError as error:
        raise CannotRun(error.told(lang)) from error
    except BrokenPipeError:
        raise  # whoever reads has seen enough
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CannotRun(f"{where}{error.strerror or error}") from error


def _folder(command: str) -> str:
    """The folder to work in where none is named: the lab's, also from within; else where a file was downloaded to."""
    from attnbook.lab.folder import is_worked_in
    from attnbook.lab.progress import NAME, is_lab

    # A progress file that is damaged beside exercises is told of, and does not make a second folder within the first.
    likely = Path(NAME).exists() or (command != "start" and not Path(FOLDER).exists())
    here = is_lab(Path()) or (likely and is_worked_in(Path()))
    return "." if here else FOLDER


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="attnbook lab",
        description="Write attention yourself, step by step, and be told what is wrong with it.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="start | check | status | hint")
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument(
        "folder", metavar="DIR", nargs="?", help=f"the folder (default: {FOLDER}, or this one if it is it)"
    )
    every.add_argument("--lang", choices=("ja", "ko", "en"), help="what to speak (default: the locale's, else English)")
    json = argparse.ArgumentParser(add_help=False)
    json.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(step=[])
    commands.add_parser("start", parents=[every], help="write the exercises that the folder lacks")
    check = commands.add_parser("check", parents=[every, json], help="check what was written, and name what is wrong")
    check.add_argument(
        "--step", metavar="N", action="append", default=[], help="this step (default: all that were edited)"
    )
    check.add_argument("--seconds", metavar="S", type=_seconds, help="limit of one call, in processor time")
    commands.add_parser("status", parents=[every, json], help="how far each step is")
    hint = commands.add_parser("hint", parents=[every], help="the next hint of a step")
    hint.add_argument("--step", metavar="N", action="append", required=True, help="which step")
    hint.add_argument("--stage", metavar="K", type=int, help="this hint (default: the one after those shown)")
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return value


def _start(folder: Path, options: argparse.Namespace, lang: Language) -> int:
    from attnbook.lab.folder import start
    from attnbook.lab.texts import say

    done = start(folder, lang)
    for title, names in (
        ("start.written", [file.name for file in done if file.written]),
        ("start.left", [file.name for file in done if not file.written]),
    ):
        if names:
            print(say(lang, title, folder=folder))
            print(*(f"  {name}" for name in names), sep="\n")
    print(say(lang, "start.next", check=_command("check", options.folder), status=_command("status", options.folder)))
    return FINE


def _command(name: str, folder: str | None) -> str:
    """The command as the reader would type it."""
    import shlex

    return f"attnbook lab {name}" + (f" {shlex.quote(folder)}" if folder else "")


def _check(folder: Path, options: argparse.Namespace, lang: Language) -> int:
    from attnbook.lab.folder import digest_of
    from attnbook.lab.notebook import NotebookError
    from attnbook.lab.texts import say
    from attnbook.lab.work import check_work, chosen

    works = chosen(folder, options.step)
    if not works:
        raise CannotRun(say(lang, "check.nothing", folder=folder))
    reports: list[tuple[Work, Report]] = []
    unreadable: list[str] = []
    for work in works:
        try:
            digest = digest_of(folder / work.name)
            report = check_work(folder, work, lang=lang, seconds=options.seconds)
        except (SyntaxError, UnicodeDecodeError) as error:
            unreadable.append(say(lang, "check.no_text", name=work.name, why=error))
            continue
        except (NotebookError, OSError) as error:
            unreadable.append(say(lang, "check.unreadable", name=work.name, why=error))
            continue
        if not options.json:
            print("\n" * bool(reports) + f"{work.name}\n{report}", flush=True)
        reports.append((work, report))
        _keep(folder, work, report, digest, lang)
    if options.json:
        print_json([{"file": work.name, **report.as_json()} for work, report in reports])
    wrong = {name for _, report in reports for name in report.mistakes}
    if unreadable:
        raise CannotRun("\n".join(unreadable))
    if wrong == {"unavailable"}:  # what the check itself needs is not there
        return COULD_NOT_RUN
    return FOUND if wrong else FINE


def _keep(folder: Path, work: Work, report: Report, digest: str, lang: Language) -> None:
    """Keep the result; where it can't be kept, say so and go on."""
    from attnbook.lab.progress import FolderError
    from attnbook.lab.texts import say
    from attnbook.lab.work import keep_result

    if "unavailable" in report.mistakes:
        return
    try:
        keep_result(folder, work, report, digest)
    except (FolderError, OSError) as error:
        print(say(lang, "check.not_kept", why=error), file=sys.stderr)


def _status(folder: Path, options: argparse.Namespace, lang: Language) -> int:
    from attnbook.lab.folder import status

    held = status(folder)
    if options.json:
        print_json([
            {"step": step.key, "state": step.state, "hints": step.hints, "files": [asdict(file) for file in step.files]}
            for step in held
        ])  # fmt: skip
        return FINE
    for step in held:
        print("\n".join(_told(step, lang)))
    return FINE


def _told(step: StepStatus, lang: Language) -> Iterator[str]:
    from attnbook.lab.exercise import heading
    from attnbook.lab.folder import State
    from attnbook.lab.texts import say

    file = step.furthest
    sign = {State.PASSED: "✓", State.FAILED: "✗"}.get(file.state, "·")
    state = say(lang, f"status.{file.state.name.lower()}", date=file.date)
    yield f"{sign} {heading(step.key, lang)}: {state}"
    if file.state is State.FAILED:
        yield from (f"    {text}" for text in _mistakes(step.key, file, lang))
    if step.hints:
        yield f"    {say(lang, 'status.hints', count=step.hints)}"


def _mistakes(key: str, file: FileStatus, lang: Language) -> Iterator[str]:
    """What each mistake is; its name alone where the text needs details that only the check knows."""
    from attnbook.lab.texts import texts

    for name in file.mistakes:
        try:
            yield texts(key).mistake(name, lang)
        except KeyError:
            yield name


def _hint(folder: Path, options: argparse.Namespace, lang: Language) -> int:
    from attnbook.lab.hints import hint_in, hint_of
    from attnbook.lab.texts import say

    key = options.step[-1]
    try:
        print(hint_in(folder, key, options.stage, lang=lang))
    except ValueError as error:
        raise CannotRun(str(error)) from error
    except OSError as error:  # it cannot be remembered there: the hint is what was asked for
        print(hint_of(folder, key, options.stage, lang=lang))
        print(say(lang, "check.not_kept", why=error), file=sys.stderr)
    return FINE
