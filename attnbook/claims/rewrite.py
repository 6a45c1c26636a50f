"""`--update`: the literal of a claim rewritten in its source, in the form and at the precision in which it was written.

Nothing is written here but by `write`. A new text is accepted only if the judge finds it fine and it says the same
kind of thing as before; whatever cannot be done so is refused with the reason and with literals to choose from.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from attnbook.claims import propose
from attnbook.claims.accept import exact
from attnbook.claims.entries import Ledger, LedgerEntry, write_whole
from attnbook.claims.judge import judge, same_number
from attnbook.claims.numerals import UNITS, Reading, Unreadable, read
from attnbook.claims.reshape import CannotReshape, candidates
from attnbook.claims.sources import Written, roles_in
from attnbook.measure import Kind, Measurement

WRITTEN_IN = (".md", ".rst", ".txt")


class CannotRewrite(Exception):
    """A claim whose literal cannot be rewritten mechanically; the text says why and what to write instead."""


@dataclass(frozen=True)
class Edit:
    """One literal of one source to be replaced."""

    entry: LedgerEntry
    new: str


@dataclass(frozen=True)
class Refusal:
    """A claim that a person has to mend."""

    entry: LedgerEntry
    reason: str

    def __str__(self) -> str:
        return f"{self.entry.place}: {self.entry.role} {self.entry.id} says {self.entry.text}: {self.reason}"


@dataclass(frozen=True)
class Source:
    """A source to be changed: its text as it is and as it will be."""

    path: Path
    name: str
    """Relative to the root, as people read it."""
    old: str
    new: str

    def diff(self) -> str:
        """The change, as `diff -u` shows it."""
        old, new = self.old.splitlines(keepends=True), self.new.splitlines(keepends=True)
        return "".join(difflib.unified_diff(old, new, self.name, self.name))


def literal(text: str, measurement: Measurement, language: str) -> str:
    """The literal that says what was measured in the form of the one that is written. Raises CannotRewrite."""
    value = measurement.value
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not _finite(value)):
            raise CannotReshape(f"{value} was measured, which no number says")
        old = read(text, language)
        by = _per_written_unit(old, measurement)
        spread = exact(measurement.spread or 0.0) * by
        reason = ""
        for new in candidates(text, exact(value) * by, spread, language):
            reason = _objection(new, old, measurement, language)
            if not reason:
                return new
        raise CannotReshape(reason)
    except Unreadable as error:
        raise CannotRewrite(_with_choices(str(error), measurement, language)) from error
    except CannotReshape as error:
        raise CannotRewrite(_with_choices(str(error), measurement, language)) from error


def _objection(new: str, old: Reading, measurement: Measurement, language: str) -> str:
    """Why a new text will not do; nothing if it will."""
    try:
        reading = read(new, language)
    except Unreadable as error:
        return str(error)
    if (reading.comparison, reading.unit, reading.kind == "about") != (old.comparison, old.unit, old.kind == "about"):
        return f"{new!r} would say another kind of thing than {old.text!r}"
    verdict = judge(new, measurement, "claim", language)
    return "" if verdict.status == "fine" else f"at the precision written it would be {new}, which is {verdict.status}"


def _per_written_unit(reading: Reading, measurement: Measurement) -> Fraction:
    written, measured = UNITS.get(reading.unit), UNITS.get(measurement.unit)
    if written is None or measured is None:
        raise CannotReshape(f"the unit {measurement.unit!r} is not known")
    return measured.factor / written.factor


def _with_choices(reason: str, measurement: Measurement, language: str) -> str:
    choices = propose.literals(measurement, language)
    return f"{reason}; could be {' or '.join(choices)}" if choices else reason


def _finite(value: float) -> bool:
    return abs(value) < float("inf")


def plan(ledger: Ledger, idents: Sequence[str], root: Path) -> tuple[list[Edit], list[Refusal]]:
    """What to rewrite for the claims with these ids that are not fine, and what cannot be. Raises CannotRewrite.

    An id that no claim has, and a call in which nothing is wrong, raise: there is nothing to plan.
    """
    known = {entry.id for entry in ledger.entries}
    if missing := [ident for ident in idents if ident not in known]:
        raise CannotRewrite(f"no claim quotes {', '.join(missing)}")
    edits, refusals = [], []
    for entry in ledger.entries:
        if entry.id not in idents or entry.fine:
            continue
        try:
            edits.append(Edit(entry, _new_text(entry, root)))
        except CannotRewrite as error:
            refusals.append(Refusal(entry, str(error)))
    return edits, refusals


def _new_text(entry: LedgerEntry, root: Path) -> str:
    if entry.role == "holds":
        raise CannotRewrite("a statement has no number to rewrite: write the sentence anew, or mend the code")
    if entry.po:
        raise CannotRewrite(f"it stands in a translation: change the msgstr in {entry.po}")
    if entry.value is None:
        raise CannotRewrite("nothing with this id was measured: mend the id")
    if entry.verdict == "stale":
        raise CannotRewrite("its record is stale: measure again")
    if Path(entry.document).suffix not in WRITTEN_IN:
        raise CannotRewrite(f"only {', '.join(WRITTEN_IN)} files are rewritten")
    if not (root / entry.document).is_file():
        raise CannotRewrite(f"there is no {entry.document} in {root}")
    return literal(entry.text, measurement_of(entry), entry.language)


def measurement_of(entry: LedgerEntry) -> Measurement:
    """What was measured for a claim, as far as judging its text needs it."""
    assert entry.value is not None
    kind: Kind = entry.kind  # type: ignore[assignment]  # written by a build from a Measurement
    return Measurement(entry.id, entry.value, entry.unit, kind, entry.spread, source=entry.source)


def apply(edits: Sequence[Edit], root: Path) -> Iterator[Source]:
    """Each source with its edits made, in memory. Raises CannotRewrite if one has moved on since the build."""
    for document in dict.fromkeys(edit.entry.document for edit in edits):
        path = root / document
        try:
            old = path.read_bytes().decode("utf-8")  # bytes: the file's line ends stay as they are
        except (OSError, UnicodeDecodeError) as error:
            raise CannotRewrite(f"cannot read {document}: {error}") from error
        new = _replaced(old, [edit for edit in edits if edit.entry.document == document])
        yield Source(path, document, old, new)


def _replaced(text: str, edits: Sequence[Edit]) -> str:
    written = list(roles_in(text))
    lines = text.split("\n")  # the only line end that `Written.line` counts
    for edit in edits:
        place = _find(written, edit.entry)
        if place is None:
            raise CannotRewrite(
                f"{edit.entry.place}: {edit.entry.id} no longer says {edit.entry.text}: build again, then update"
            )
        written.remove(place)
        _replace_at(lines, place.line - 1, edit)
    return "\n".join(lines)


def _find(written: Sequence[Written], entry: LedgerEntry) -> Written | None:
    """The role of a claim in its source: the one nearest to the line that the build named."""
    same = [
        place
        for place in written
        if place.role == entry.role and not place.place and _split(place.raw) == (entry.text, entry.id)
    ]
    return min(same, key=lambda place: abs(place.line - entry.line), default=None)


def _split(raw: str) -> tuple[str, str]:
    text, _, ident = raw.rpartition("<")
    return text.strip(), ident.rstrip("> ")


def _replace_at(lines: list[str], index: int, edit: Edit) -> None:
    old = f"{edit.entry.text} <{edit.entry.id}>"
    line = lines[index]
    at = line.find(f"`{old}`")
    if at < 0:
        raise CannotRewrite(f"{edit.entry.place}: write the role of {edit.entry.id} on one line, with single spaces")
    lines[index] = line[: at + 1] + f"{edit.new} <{edit.entry.id}>" + line[at + 1 + len(old) :]


def outdated(edits: Sequence[Edit], root: Path) -> Iterator[str]:
    """The translations whose number differs from the one that an edit writes, a line each with their place.

    Reads the catalogues (`locales/*/LC_MESSAGES/*.po`) beside the sources; where there are any, ModuleNotFoundError
    without babel.
    """
    paths = _catalogues(edits, root)
    if not paths:
        return
    from babel.messages import pofile  # only here, so that the ledger can be read without babel

    for path in paths:
        parts = path.relative_to(root).parts
        language = parts[parts.index("LC_MESSAGES") - 1]
        with path.open("rb") as file:
            catalogue = pofile.read_po(file, ignore_obsolete=True)
        for message in catalogue:
            for role in roles_in(message.string if isinstance(message.string, str) else ""):
                text, ident = _split(role.raw)
                new = next((e for e in edits if e.entry.id == ident and _quotes(message.id, e)), None)
                if new is not None and not same_number(new.new, new.entry.language, text, language):
                    place = f"{path.relative_to(root).as_posix()}:{message.lineno or 1}"
                    yield f"{place}: claim {ident} says {text}, the source will say {new.new}"


def _catalogues(edits: Sequence[Edit], root: Path) -> list[Path]:
    folders = {folder for edit in edits for folder in Path(edit.entry.document).parents}
    return sorted(
        path
        for folder in folders
        for name in ("locales", "locale")
        for path in (root / folder / name).glob("*/LC_MESSAGES/**/*.po")
    )


def _quotes(message: object, edit: Edit) -> bool:
    """Does a source message hold the claim that an edit rewrites?"""
    return isinstance(message, str) and (edit.entry.text, edit.entry.id) in [_split(r.raw) for r in roles_in(message)]


def write(source: Source) -> None:
    """Change a source on disk, whole or not at all. Raises CannotRewrite."""
    try:
        write_whole(source.path, source.new)
    except OSError as error:
        raise CannotRewrite(f"cannot write {source.name}: {error.strerror}; it is as it was") from error


def find_root(ledger: Ledger, ledger_file: Path) -> Path:
    """The folder that the ledger's paths are relative to: the nearest one above the ledger that has them all.

    Raises CannotRewrite.
    """
    documents = {entry.document for entry in ledger.entries}
    for folder in ledger_file.resolve().parents:
        if documents and all((folder / document).is_file() for document in documents):
            return folder
    raise CannotRewrite(f"the sources of {ledger_file.name} lie in no folder above it: build again where they are")
