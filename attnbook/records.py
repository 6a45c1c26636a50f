"""Numbers that this machine cannot measure: records made elsewhere, and what makes a record stale.

A record is a JSON file in `book/records`: the device, the versions, the date and the command that produced its values,
and for every source file behind them the digest of its syntax tree. Once such a source changes, the record is stale
and a claim on it fails until it is measured again. Standard library only.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from pathlib import Path
from typing import Any

from attnbook.measure import Measurement, measure

TRACE = "ATTNBOOK_TRACE"
"""Names the file to which the processes of a running chapter append the files they used, a JSON line each."""
BOOK = "ATTNBOOK_BOOK"
"""Names the book's folder while a chapter runs."""

ROOT = Path(__file__).parent.parent
"""What the source paths of a record are relative to: the folder that holds the package."""


class RecordError(ValueError):
    """A record that can't be read or lacks something; the message names the file and the place in it."""


def source_digest(paths: Iterable[Path | str]) -> str:
    """A digest of what Python files say to the interpreter: comments, docstrings, layout and names of files aside.

    It is the same under every Python from 3.11 on: a record is made on one machine and judged on another. A file that
    is not Python counts with its bytes. The order of `paths` does not matter.

    Raises OSError for a file that can't be read, SyntaxError for Python that can't be parsed.
    """
    digests = sorted(_file_digest(Path(path)) for path in paths)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".py":
        content = "\n".join(_outline(ast.parse(content, str(path)))).encode()
    return hashlib.sha256(content).hexdigest()


def _outline(node: ast.AST) -> Iterator[str]:
    """The tree as lines: what `ast.dump` says, without what differs between versions of Python."""
    yield f"({type(node).__name__}"
    if isinstance(node, ast.Constant):
        # repr alone would not tell 1 from True in every version's dump; `kind` (the u of u"") says nothing.
        yield f"{type(node.value).__name__} {node.value!r}"
    else:
        for name, value in ast.iter_fields(node):
            if value is None or value == [] or name in ("ctx", "type_comment", "type_ignores"):
                continue  # newer versions add fields that are empty in older programs
            yield name
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    if not _says_nothing(item, node):
                        yield from _outline(item)
                else:
                    yield repr(item)
    yield ")"


def _says_nothing(node: ast.AST, parent: ast.AST) -> bool:
    """A docstring or another string standing alone, or the empty text that some versions add to an f-string."""
    if isinstance(parent, ast.JoinedStr):
        return isinstance(node, ast.Constant) and node.value == ""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@dataclass(frozen=True)
class RecordedValue:
    """One value of a record."""

    value: bool | int | float
    unit: str = ""
    spread: float | None = None


@dataclass(frozen=True)
class Record:
    """What was measured elsewhere, where, when and with what."""

    path: Path
    device: str
    versions: Mapping[str, str]
    date: str
    command: str
    sources: Mapping[str, str]
    """For every source file behind the values, relative to the folder that holds the package, its `source_digest`."""
    values: Mapping[str, RecordedValue]
    missing: Mapping[str, str] = field(default_factory=dict)
    """What the command would have measured and did not, and why; empty for a record of everything."""

    @classmethod
    def load(cls, path: Path | str) -> Record:
        """Read and check a record.

        Raises RecordError for a file that is missing, is no JSON, or lacks the device, versions, an ISO date, the
        command, the sources or the values: no record, no claim.
        """
        path = Path(path)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RecordError(f"record {_shown(path)} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise RecordError(f"record {_shown(path)} is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise RecordError(f"record {_shown(path)}: expected an object, got {type(data).__name__}")
        check = _Check(path, data)
        return cls(
            path,
            check.text("device"),
            check.texts("versions"),
            check.date("date"),
            check.text("command"),
            check.texts("sources"),
            {key: check.value(key, raw) for key, raw in check.mapping("values").items()},
            check.texts("missing") if data.get("missing") else {},
        )

    def stale(self) -> tuple[str, ...]:
        """The source files that say something else now, or are gone."""
        return tuple(path for path, digest in self.sources.items() if not _still(ROOT / path, digest))

    def save(self) -> None:
        """Write the record to its path, whole or not at all.

        Raises RecordError for what `load` would refuse, and then what was there stays; OSError.
        """
        values = {
            key: {"value": v.value, "unit": v.unit} | ({} if v.spread is None else {"spread": v.spread})
            for key, v in self.values.items()
        }
        data = {
            "device": self.device, "versions": dict(self.versions), "date": self.date, "command": self.command,
            "sources": dict(self.sources), "values": values, "missing": dict(self.missing),
        }  # fmt: skip
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".unfinished.json")
        try:
            beside.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            Record.load(beside)
            beside.replace(self.path)
        finally:
            beside.unlink(missing_ok=True)


def processor() -> str:
    """The name of this machine's processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named and named[0] != "unknown" else platform.machine() or "unknown processor"


def _still(path: Path, digest: str) -> bool:
    try:
        return source_digest([path]) == digest
    except (OSError, SyntaxError):
        return False


@dataclass(frozen=True)
class _Check:
    """Takes a record's fields out of parsed JSON, or says what is wrong with them."""

    path: Path
    data: Mapping[str, Any]

    def fail(self, place: str, expected: str, got: object) -> RecordError:
        return RecordError(f"record {_shown(self.path)}: {place}: expected {expected}, got {got!r}")

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, "a text", value)
        return value

    def date(self, key: str) -> str:
        value = self.text(key)
        try:
            Date.fromisoformat(value)
        except ValueError:
            raise self.fail(key, "a date such as 2025-06-30", value) from None
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.data.get(key)
        if not isinstance(value, dict) or not value:
            raise self.fail(key, "an object that is not empty", value)
        return value

    def texts(self, key: str) -> Mapping[str, str]:
        value = self.mapping(key)
        for name, item in value.items():
            if not isinstance(item, str) or not item:
                raise self.fail(f"{key}.{name}", "a text", item)
        return value

    def value(self, key: str, raw: object) -> RecordedValue:
        place = f"values.{key}"
        if not isinstance(raw, dict) or "value" not in raw:
            raise self.fail(place, "an object with a value", raw)
        value, unit, spread = raw["value"], raw.get("unit", ""), raw.get("spread")
        if not isinstance(value, bool | int | float) or not math.isfinite(value):
            raise self.fail(f"{place}.value", "a finite number or a boolean", value)
        if not isinstance(unit, str):
            raise self.fail(f"{place}.unit", "a text", unit)
        if spread is not None and (isinstance(spread, bool) or not isinstance(spread, int | float) or spread < 0):
            raise self.fail(f"{place}.spread", "a number that is not negative", spread)
        return RecordedValue(value, unit, spread)


def recorded(id: str, record_path: Path | str, key: str, *, quote: bool | None = None) -> Measurement:
    """Measure a value that a record holds, so that a sentence can quote it with its device and date.

    `record_path` is relative to the running folder or to the book's, such as `records/flash.json`. The record and the
    sources behind it become dependencies of the running chapter: when they change, it runs again.

    Raises RecordError for a record that can't be read and for a key that it lacks.
    """
    path = find_record(record_path)
    depends_on(path)
    record = Record.load(path)
    for source in record.sources:
        depends_on(ROOT / source)
    if key not in record.values:
        raise RecordError(f"record {_shown(path)} has no value {key!r}; it holds: {', '.join(record.values)}")
    value = record.values[key]
    return measure(
        id, value.value, unit=value.unit, kind="recorded", spread=value.spread, quote=quote,
        source=_shown(path), device=record.device, date=record.date, stale=record.stale(),
    )  # fmt: skip


def depends_on(path: Path | str) -> None:
    """Say that the running chapter depends on a data file: when the file changes, the chapter runs again.

    Python modules of the package and files opened below the book's folder are found without being told; what a library
    opens in its own way, or outside the book, is declared here. A file that does not exist counts too: the chapter runs
    again once it does. Outside the execution of a chapter nothing happens.
    """
    trace = os.environ.get(TRACE)
    if not trace:
        return
    full = os.path.realpath(path)
    try:
        with Path(full).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        digest = "absent"
    line = json.dumps({"file": full, "digest": digest}) + "\n"
    # One write to a file opened for appending: lines of several processes do not mix.
    descriptor = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def find_record(path: Path | str) -> Path:
    """The file of a record, named from the running folder or from the book's. Raises RecordError where neither has it.

    A chapter that asked depends on it either way: once it is there, or gone, the chapter runs again.
    """
    tried = [Path(path), Path(os.environ.get(BOOK, ROOT / "book")) / path]
    for candidate in tried:
        if candidate.is_file():
            return candidate.resolve()
    depends_on(tried[-1])
    raise RecordError(f"record {path} not found, neither in the running folder nor in the book's")


def _shown(path: Path) -> str:
    """The path as people read it: below the book or the project, else as given; never where the checkout lies."""
    full = path.resolve()
    for folder in (Path(os.environ.get(BOOK, ROOT / "book")).resolve().parent, ROOT.resolve()):
        if full.is_relative_to(folder):
            return full.relative_to(folder).as_posix()
    return path.name
