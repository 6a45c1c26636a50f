"""Inside the processes of a running chapter: which of our files they use, and where a cell failed.

Every use is written at once, one line of JSON with the file and the digest of its content, to the file that
ATTNBOOK_TRACE names: a process that ends by `os._exit` or a signal has told all it used.

Modules of the package are compiled from the very bytes whose digest is written, past Python's bytecode cache: that
cache takes two files of one size saved within one second for the same, which is just what a changed sign in a line is.
"""

# Runs at every opening of a file, where text is quicker than Path.
# ruff: noqa: PTH100, PTH110, PTH113, PTH118, PTH123
from __future__ import annotations

import hashlib
import json
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import PurePath
from types import CodeType, ModuleType
from typing import Any

_trace = os.environ.get("ATTNBOOK_TRACE", "")
_book = os.environ.get("ATTNBOOK_BOOK", "")
_roots = tuple(root + os.sep for root in os.environ.get("ATTNBOOK_ROOTS", "").split(os.pathsep) if root)
_foreign = tuple({prefix + os.sep for prefix in (sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev")})
_noted: set[tuple[str, str]] = set()
_busy = threading.local()


def start() -> None:
    """Begin to write down what this process, and those it forks, uses of the package and the book's folder."""
    if _trace and _roots:
        sys.meta_path.insert(0, _Finder())
        sys.addaudithook(_heard)


class _Finder:
    """Finds what the other finders find, but has modules of the package and the book compiled by `_Loader`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if type(spec.loader) is SourceFileLoader and os.path.realpath(spec.loader.path).startswith(_roots):
                    spec.loader = _Loader(spec.loader.name, spec.loader.path)
                return spec
        return None


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        with _quiet():
            source = self.get_data(path)
        _note(os.path.realpath(path), hashlib.sha256(source).hexdigest())
        code: CodeType = self.source_to_code(source, path)
        return code


class _quiet:
    """Our own reading and writing is no use of a file by the chapter."""

    def __enter__(self) -> None:
        _busy.here = True

    def __exit__(self, *exc: object) -> None:
        _busy.here = False


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        writes_only = isinstance(flags, int) and flags & os.O_ACCMODE == os.O_WRONLY
        if isinstance(path, str | bytes | os.PathLike) and not writes_only and not getattr(_busy, "here", False):
            _used(os.fsdecode(path))
    elif event == "cpython.run_file" and arguments and isinstance(arguments[0], str | bytes):
        _used(os.fsdecode(arguments[0]))


def _used(path: str) -> None:
    path = os.path.abspath(path)
    if not path.startswith(_roots):
        if path.startswith(_foreign):
            return
        path = os.path.realpath(path)
        if not path.startswith(_roots):
            return
    if not _is_output(path):
        with _quiet():
            path = os.path.realpath(path)
            digest = _digest(path)
        if digest:
            _note(path, digest)


def _is_output(path: str) -> bool:
    return "__pycache__" in PurePath(path).parts or path.startswith(os.path.join(_book, "_build") + os.sep)


def _digest(path: str) -> str:
    """The digest of a file's content, "absent" for a file that does not exist, nothing for what is not a file."""
    try:
        if not os.path.isfile(path):
            return "" if os.path.exists(path) else "absent"
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "absent"


def _note(path: str, digest: str) -> None:
    if (path, digest) in _noted:
        return
    _noted.add((path, digest))
    with _quiet():
        try:
            descriptor = os.open(_trace, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            return  # the chapter is over, this process outlived it
        try:
            # One write to a file opened for appending: lines of several processes do not mix.
            os.write(descriptor, (json.dumps({"file": path, "digest": digest}) + "\n").encode())
        finally:
            os.close(descriptor)


def failure() -> str:
    """Where the last exception came from, as JSON: a list of frames, the outermost first.

    A frame has `file`, `line`, `function`, `code` (the text of the line), and `count`, the execution count of the cell
    whose code it is, or null.
    """
    error = sys.last_value
    frames = [_frame(f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(sys.last_traceback)]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append(_frame(error.filename, error.lineno, ""))
    return json.dumps(frames)


def _frame(file: str, line: int, function: str) -> dict[str, object]:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    counts = getattr(shell.compile, "_filename_map", {}) if shell is not None else {}
    return {
        "file": file,
        "line": line,
        "function": function,
        "code": linecache.getline(file, line).strip(),
        "count": counts.get(file),
    }
