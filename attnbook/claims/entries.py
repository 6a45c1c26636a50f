"""A line of the ledger: one claim, what it is bound to, and how it was judged. Plain data, for every reader of it."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from attnbook.measure import Value, format_value

LEDGER_VERSION = 1


@dataclass(frozen=True)
class Accepts:
    """The values a written text accepts, in the measurement's unit; None is no bound on that side.

    `text` says it in words, as the failure message does: "0.945 to 0.955". A statement accepts "true".
    """

    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    text: str = ""


@dataclass(frozen=True)
class LedgerEntry:
    """One claim of one page in one language."""

    id: str
    role: str
    text: str
    value: Value | None
    """What was measured; None where the id is unknown."""
    unit: str
    kind: str
    spread: float | None
    accepts: Accepts
    verdict: str
    """"fine", or the kind of failure: "drift", "fragile", "stale", "unknown id", "unreadable", …"""
    message: str
    """What is wrong, in one line; empty where the verdict is fine."""
    document: str
    """The page's source, relative to `claims_root`: book/03-scaling.md."""
    line: int
    language: str
    measured_in: str = ""
    """The page whose cell measured it, relative to `claims_root`."""
    cell: int | None = None
    """Which of that page's code cells, counted from 1."""
    experiment: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    date: str = ""
    source: str = ""
    """Where a cited value was published, or the record of a recorded one."""
    derived_from: tuple[str, ...] = ()
    po: str = ""
    """For a translated claim: the catalogue that holds it, relative to `claims_root`, and the message's line."""
    po_line: int = 0
    docname: str = ""
    """Sphinx's name of the page, to link to."""
    number: int = 0
    """The claim's place among its page's claims; with `docname` the key of `ClaimsDomain.entry`."""
    measured_docname: str = ""
    """Sphinx's name of the page that measured it."""
    cell_anchor: str = ""
    """The id of the cell in that page, to link to; empty where it was measured outside a notebook."""

    @property
    def fine(self) -> bool:
        """Is the claim borne out?"""
        return self.verdict == "fine"

    @property
    def place(self) -> str:
        """Where the text is to be mended: the source, or for a translation its catalogue."""
        return f"{self.po}:{self.po_line}" if self.po else f"{self.document}:{self.line}"

    def as_json(self) -> dict[str, Any]:
        """A JSON object; the inverse is `from_json`.

        A value is a JSON number or boolean; NaN, the infinities and rationals, which JSON has not, are strings.
        """
        data = asdict(self)
        data["value"] = None if self.value is None else _plain(self.value)
        data["value_type"] = type(self.value).__name__
        data["value_text"] = "" if self.value is None else format_value(self.value)
        data["settings"] = dict(self.settings)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LedgerEntry:
        """The entry that `as_json` wrote."""
        fields = dict(data)
        fields.pop("value_text", None)
        kind = fields.pop("value_type", "float")
        readers = {"float": float, "Fraction": Fraction}
        if fields["value"] is not None and kind in readers:
            fields["value"] = readers[kind](fields["value"])
        fields["accepts"] = Accepts(**fields["accepts"])
        fields["derived_from"] = tuple(fields["derived_from"])
        return cls(**fields)


def _plain(value: Value) -> bool | int | float | str:
    if isinstance(value, Fraction) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


@dataclass(frozen=True)
class Failure:
    """One reason why the build is red, with its place."""

    document: str
    line: int
    status: str
    message: str
    """Starts after the place, may go on in indented lines."""

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Ledger:
    """All entries of a build and all its failures: what `ledger.json` holds."""

    language: str
    entries: tuple[LedgerEntry, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def judged(self) -> int:
        """How many claims were judged."""
        return len(self.entries)

    @property
    def unowned(self) -> int:
        """How many numerals in prose nobody owns."""
        return sum(failure.status == "unowned" for failure in self.failures)

    def as_json(self) -> dict[str, Any]:
        """The object that `ledger.json` holds."""
        return {
            "version": LEDGER_VERSION,
            "language": self.language,
            "judged": self.judged,
            "unowned": self.unowned,
            "failures": [asdict(failure) for failure in self.failures],
            "claims": [entry.as_json() for entry in self.entries],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ledger:
        """The ledger that `as_json` wrote. Raises ValueError for another version of the file."""
        if data.get("version") != LEDGER_VERSION:
            raise ValueError(f"ledger version {data.get('version')!r}, expected {LEDGER_VERSION}: build again")
        entries = tuple(map(LedgerEntry.from_json, data["claims"]))
        return cls(data["language"], entries, tuple(Failure(**failure) for failure in data["failures"]))

    def write(self, path: Path) -> None:
        """Write `ledger.json` whole or not at all: a reader never sees half of one. Raises OSError.

        A ledger that says the same as the file is not written again.
        """
        text = json.dumps(self.as_json(), ensure_ascii=False, indent=1) + "\n"
        if not path.is_file() or path.read_bytes() != text.encode():
            write_whole(path, text)


def write_whole(path: Path, text: str) -> None:
    """Replace a file by a text in one step, through a file beside it. Raises OSError; then nothing has changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp made it private
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def in_order(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Failures as a person mends them: by file, by line, each once."""
    return tuple(sorted(dict.fromkeys(failures), key=lambda failure: (failure.document, failure.line)))
