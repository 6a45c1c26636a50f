"""Reading the ledger that a build left behind, and printing it as a table. Needs no Sphinx."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnbook.claims.entries import Ledger, LedgerEntry
from attnbook.measure import format_value

_LONGEST = 40  # places of a terminal that a statement may take in the table


class NoLedger(Exception):
    """There is no ledger to read, or it is not one; the text says what to do."""


def load(path: Path) -> Ledger:
    """The ledger in a file. Raises NoLedger for a file that is missing, unreadable, or no ledger."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NoLedger(f"there is no ledger at {path}: a build writes it") from None
    except OSError as error:
        raise NoLedger(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise NoLedger(f"{path} is not JSON ({error}): build again") from error
    try:
        return Ledger.from_json(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise NoLedger(f"{path} is JSON but no ledger ({type(error).__name__}: {error})") from error
    except ValueError as error:
        raise NoLedger(f"{path}: {error}") from error


def sentence(ledger: Ledger) -> str:
    """`59 judged, 0 unowned`, and how many are not fine."""
    text = f"{ledger.judged} judged, {ledger.unowned} unowned"
    if bad := sum(not entry.fine for entry in ledger.entries):
        text += f", {bad} not fine"
    return text


def is_fine(ledger: Ledger) -> bool:
    """Did the build find nothing at all to complain about, and did it judge anything?"""
    return bool(ledger.entries) and not ledger.failures and all(entry.fine for entry in ledger.entries)


def table(ledger: Ledger) -> str:
    """All claims, a line each, by place; then every failure; then what it comes to."""
    rows: list[tuple[str, ...]] = [("place", "id", "text", "value", "accepts", "kind", "verdict")]
    rows += [_row(entry) for entry in ledger.entries]
    parts = ["\n".join(columns(rows))] if ledger.entries else []
    if ledger.failures:
        parts.append("\n".join(str(failure) for failure in ledger.failures))
    return "\n\n".join([*parts, sentence(ledger)])


def _row(entry: LedgerEntry) -> tuple[str, ...]:
    value = "-" if entry.value is None else value_text(entry)
    text = shortened(entry.text, _LONGEST)
    return entry.place, entry.id, text, value, entry.accepts.text or "-", entry.kind or "-", entry.verdict


def shortened(text: str, width: int) -> str:
    """A text that takes at most so many places of a terminal; what is left out is shown by `…`."""
    if _width(text) <= width:
        return text
    while _width(text) >= width:
        text = text[:-1]
    return text + "…"


def value_text(entry: LedgerEntry) -> str:
    """The measured value with its unit; nothing for an id that nobody measured."""
    if entry.value is None:
        return "nothing"
    return f"{format_value(entry.value)} {entry.unit}".removesuffix(" ratio").rstrip()


def columns(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Rows as lines with aligned columns. A full-width character takes two places of a terminal."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True)).rstrip()


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text
    )
