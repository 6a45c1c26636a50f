"""`python -m attnbook.bookkit`: execute the chapters of a book, build it, serve it to its author.

Exit status: 0 fine, 1 a chapter failed or a claim does not hold, 2 it could not be run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from attnbook.bookkit import build, entrance, progress
from attnbook.bookkit.execute import TIMEOUT
from attnbook.bookkit.serve import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    progress.never_refuse()
    options = _parser().parse_args(arguments)
    book = options.book
    try:
        match options.command:
            case "execute":
                return build.run_execute(book, jobs=options.jobs, timeout=options.timeout, only=options.only)
            case "build":
                return build.run_build(
                    book, languages=options.language or [entrance.SOURCE], jobs=options.jobs, timeout=options.timeout,
                    builder=options.builder, base_url=options.base_url, verbose=options.verbose,
                    strict=options.strict,
                )  # fmt: skip
            case "sphinx":
                return build.run_sphinx(
                    book, options.language, builder=options.builder, verbose=options.verbose, strict=options.strict
                )
            case _:
                return serve(
                    book, language=options.language, port=options.port, host=options.host,
                    with_parent=options.with_parent,
                )  # fmt: skip
    except build.CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f'the package {error.name} is not installed here; what the book needs: pip install ".[book]"',
            file=sys.stderr,
        )
        return 2
    except Exception:  # a fault of ours or of Sphinx: say where, and not with the status of a failed claim
        traceback.print_exc()
        return 2
    except KeyboardInterrupt:
        print("interrupted: chapters that had run are kept", file=sys.stderr)
        return 130
    except asyncio.CancelledError:
        print("terminated: chapters that had run are kept", file=sys.stderr)
        return 143


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attnbook.bookkit", description="Execute, build and serve a book.")
    commands = parser.add_subparsers(dest="command", required=True)
    execute = commands.add_parser("execute", help="run the chapters whose results no longer hold")
    full = commands.add_parser("build", help="execute, then build with Sphinx")
    sphinx = commands.add_parser("sphinx", help="run Sphinx alone, on results that are there")
    watch = commands.add_parser("serve", help="build, serve on this machine, rebuild and reload after every change")
    for command in (execute, full, sphinx, watch):
        command.add_argument("book", type=Path, help="the book's folder")
    for command in (execute, full):
        command.add_argument("--jobs", type=_positive, help="chapters run side by side (default: one a core)")
        command.add_argument("--timeout", type=_seconds, default=TIMEOUT, help="seconds a cell may take (%(default)g)")
    execute.add_argument("--only", nargs="+", default=[], metavar="CHAPTER", help="only these, such as 03-scaling")
    full.add_argument(
        "--language", action="append", help=f"ja, ko or en; may be given several times (default: {entrance.SOURCE})"
    )
    full.add_argument("--base-url", default="", help="address the book will have, for canonical links")
    for command in (full, sphinx):
        command.add_argument("--builder", default="html", help="Sphinx's builder (%(default)s)")
        command.add_argument("--verbose", action="store_true", help="show what Sphinx says on its way")
        command.add_argument("--strict", action="store_true", help="a warning of Sphinx is a failure")
    for command in (sphinx, watch):
        command.add_argument("--language", default=entrance.SOURCE)
    watch.add_argument("--with-parent", action="store_true", help="end when the process that started it has ended")
    watch.add_argument("--host", default="127.0.0.1")
    watch.add_argument("--port", type=int, default=8000, help="0 finds a free one (%(default)s)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected more than 0 seconds, got {text}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
