"""The command line: one file a command, imported only when called.

Every command exits with 0 (fine), 1 (it found something) or 2 (it could not run), says on standard error why it could
not, and prints JSON when asked with --json.
"""

from __future__ import annotations

import argparse
import codecs
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final

FINE: Final = 0
FOUND: Final = 1
COULD_NOT_RUN: Final = 2

COMMANDS: Final = {
    "bench": "measure how fast it is here, on the CPU or on a GPU, against what a user would pick instead",
    "experiment": "list the book's experiments, or run one and print what it measures",
    "kernels": "compile every Triton kernel without a GPU and report registers, spills, shared memory, matrix products",
    "kv": "size the KV cache of a model: does it fit beside the weights, and what would",
    "lab": "write attention yourself: exercises, a check that names mistakes, hints, progress",
    "ledger": "show every number the book quotes, compare two builds, rewrite numbers that drifted",
    "probe": "test a model of your own: does it see its future, its neighbours, or leave the finite range?",
}


class CannotRun(Exception):
    """A command can't do what was asked; its text says why and what would help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 fine, 1 found something, 2 could not run."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # the book is Japanese: a terminal that isn't must not stop the command
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    name, rest = _command(words)
    run: Callable[[Sequence[str]], int] = importlib.import_module(f"attnbook.cli.{name}").main
    try:
        status = run(rest)
        sys.stdout.flush()  # a closed pipe shows here and not at shutdown, where it could not be caught
    except CannotRun as error:
        print(f"attnbook {name}: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except ModuleNotFoundError as error:
        if (error.name or "attnbook").partition(".")[0] == "attnbook":
            raise  # ours: a bug, not a missing package
        print(f"attnbook {name}: this needs {error.name}, which is not installed", file=sys.stderr)
        return COULD_NOT_RUN
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        print(f"attnbook {name}: interrupted", file=sys.stderr)
        return COULD_NOT_RUN
    return status


def print_json(data: object) -> None:
    """Print data as JSON; all but ASCII is escaped where standard output is not UTF-8, so that it stays JSON there."""
    utf8 = codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name == "utf-8"
    print(json.dumps(data, ensure_ascii=not utf8, indent=2))


def _command(words: list[str]) -> tuple[str, list[str]]:
    """The command's name and its own arguments; argparse answers --help, --version and anything unknown."""
    parser = argparse.ArgumentParser(
        prog="attnbook",
        description="Tools of a book whose numbers are checked. Exit status: 0 fine, 1 found something, 2 could not.",
        epilog="commands:\n" + "\n".join(f"  {name:<12}{what}" for name, what in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attnbook {_version()}")
    parser.add_argument("command", choices=COMMANDS, help="one of the commands below; each has its own --help")
    # Only the first word is ours: `attnbook ledger --help` is the command's help.
    return parser.parse_args(words[:1]).command, words[1:]


def _version() -> str:
    try:
        return metadata.version("attnbook")
    except metadata.PackageNotFoundError:
        return "(not installed)"
