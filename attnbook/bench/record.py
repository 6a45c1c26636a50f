"""The record of a run: a file of `book/records` that the book may quote from (`attnbook.records`).

While a run goes on, what it has so far lies beside the record in a file of its own, with the cases that are still to
come as missing; it takes the record's place when the run ends. So a run that is killed leaves its figures and destroys
none, and a run that ended early says what it lacks.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attnbook import records
from attnbook.bench.case import Case, Finding, Setting, Verdict
from attnbook.bench.report import versions
from attnbook.records import Record, RecordError, source_digest

METHOD = {
    "cuda": "CUDA events around one call of each side in turns, medians; the L2 cache overwritten before each call, "
    "launching hidden",
    "cpu": "one call of each side in turns on the wall's clock, medians",
}
UNITS = {"x": "ratio", "%": "%", "TFLOP/s": "TFLOP/s", "GB/s": "GB/s"}
"""Of figures that are recorded as such; what else a figure is made of is recorded as its parts."""

ROOMS = {"cuda": ("kernels",), "cpu": ("api", "tiled")}
"""Whose sources decide a figure, beside the case's own."""


class CannotRecord(Exception):
    """A record can't be written there; the text says why."""


def default_path(setting: Setting) -> Path:
    """`book/records/bench-DEVICE.json` of the checkout; raises CannotRecord where there is no book."""
    book = records.ROOT / "book"
    if not (book / "conf.py").is_file():
        raise CannotRecord("there is no book beside the package: name a file after --record")
    name = "cpu" if setting.device == "cpu" else _slug(setting.machine)
    return book / "records" / f"bench-{name}.json"


class Recorder:
    """Writes what is known so far after every case, and the record at the end."""

    def __init__(self, path: Path, setting: Setting, command: str, cases: Sequence[Case]) -> None:
        """Raises CannotRecord where the run would replace a record of cases that it leaves out."""
        self.path, self.setting, self.command, self.cases = path, setting, command, tuple(cases)
        self.unfinished = path.with_suffix(".unfinished.json")
        self.before = _read(path)
        names = {case.name for case in cases}
        left_out = [name for name in _cases(path) if name not in names] if self.before else []
        if left_out:
            raise CannotRecord(
                f"{_short(path)} holds {', '.join(left_out)}, which this run leaves out and would take away: "
                "name another file after --record"
            )
        path.parent.mkdir(parents=True, exist_ok=True)

    def update(self, verdicts: Sequence[Verdict]) -> None:
        """Keep what is known so far."""
        if any(verdict.finding for verdict in verdicts):
            self.unfinished.write_text(self._text(verdicts), encoding="utf-8")

    def finish(self, verdicts: Sequence[Verdict]) -> str:
        """Write the record -> what was written, what it replaces and what it lacks, in words."""
        if not any(verdict.finding for verdict in verdicts):
            return f"no record: nothing was measured, and {_short(self.path)} is as it was"
        self.unfinished.write_text(self._text(verdicts), encoding="utf-8")
        made = Record.load(self.unfinished)  # what the book would refuse replaces nothing
        self.unfinished.replace(self.path)
        said = [f"wrote {_short(self.path)}: {len(made.values)} values"]
        if self.before is not None:
            gone = [key for key in self.before.values if key not in made.values]
            lost = f", and {len(gone)} of its values are gone: {', '.join(gone)}" if gone else ""
            said.append(f"it replaces the record of {self.before.date}{lost}")
        if made.missing:
            said.append("it lacks " + ", ".join(f"{name} ({why})" for name, why in made.missing.items()))
        return "; ".join(said)

    def _text(self, verdicts: Sequence[Verdict]) -> str:
        kind = "cpu" if self.setting.device == "cpu" else "cuda"
        done = {verdict.case.name: verdict for verdict in verdicts}
        missing = {case.name: _why(done.get(case.name)) for case in self.cases}
        data = {
            "device": self.setting.machine,
            "versions": versions(self.setting.device),
            "date": datetime.now(UTC).date().isoformat(),
            "command": self.command,
            "method": METHOD[kind],
            "sources": sources(self.cases, ROOMS[kind]),
            "cases": {name: verdict.word for name, verdict in done.items()},
            "values": {key: value for v in verdicts if v.finding for key, value in values(v.case, v.finding).items()},
            "missing": {name: why for name, why in missing.items() if why}
            | {f"{v.case.name}.{_slug(side)}": why for v in verdicts if v.finding
               for side, why in v.finding.absent.items()},
        }  # fmt: skip
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def values(case: Case, found: Finding) -> dict[str, dict[str, Any]]:
    """The values of a case by their keys in the record: its figure, each side, its ratios."""
    made: dict[str, dict[str, Any]] = {}

    def add(name: str, value: float, unit: str, spread: float | None = None) -> None:
        if math.isfinite(value):
            entry = {"value": value, "unit": unit} | ({} if spread is None else {"spread": spread})
            made[f"{case.name}.{_slug(name)}" if name else case.name] = entry

    if not found.rates:
        add("", found.figure, UNITS[case.target.unit], found.spread)
        for name, size in found.sides.items():
            add(name, size, found.unit)
    for i, (name, rate) in enumerate(found.rates.items()):
        add(name, rate, found.rate_unit, found.spread if i == 0 else None)
    for name, share in found.shares.items():
        add(name, share, "ratio")
    return made


def sources(cases: Iterable[Case], rooms: tuple[str, ...]) -> dict[str, str]:
    """The digest of every source behind the figures: of these rooms what is loaded by now, and of the cases' modules.

    What is loaded is what ran: a kernel of another operation, or the compile report, does not make figures stale.
    """
    names = {case.run.__module__ for case in cases} | {"attnbook.bench.clock"}
    prefixes = tuple(f"attnbook.{room}." for room in rooms)
    names |= {name for name in sys.modules if name.startswith(prefixes)}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    inside = (Path(file).resolve() for file in files if file)
    root = records.ROOT.resolve()
    return {path.relative_to(root).as_posix(): source_digest([path])
            for path in sorted(inside) if path.is_relative_to(root / "attnbook")}  # fmt: skip


def _why(verdict: Verdict | None) -> str:
    """Why a case has no values; empty where it has."""
    if verdict is None:
        return "the run had not come to it"
    if verdict.finding is not None:
        return ""
    return f"{verdict.word}: {verdict.why}"


def _read(path: Path) -> Record | None:
    if not path.exists():
        return None
    try:
        return Record.load(path)
    except RecordError as error:
        raise CannotRecord(f"{error}; it is not replaced: name another file after --record") from error


def _cases(path: Path) -> Mapping[str, str]:
    """The cases that a record holds values of, by its own list."""
    listed = json.loads(path.read_text(encoding="utf-8")).get("cases", {})
    return {name: word for name, word in listed.items() if word not in ("not run", "WRONG")}


def _short(path: Path) -> str:
    """The path as people read it: below the checkout, else its name; never where the checkout lies."""
    full, root = path.resolve(), records.ROOT.resolve()
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else path.name


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
