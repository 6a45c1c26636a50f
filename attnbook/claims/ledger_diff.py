"""What moved between two builds: claims that came and went, values that moved, verdicts that changed. Pure.

A claim is known by its page, role and id, and among equals by its text, then by its order: a sentence that moved down
a page has not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from attnbook.claims.entries import Ledger, LedgerEntry
from attnbook.claims.ledger import value_text
from attnbook.measure import Value


@dataclass(frozen=True)
class Moved:
    """A measurement whose value or unit is not what it was."""

    id: str
    old: str
    new: str
    relative: float | None
    """(new − old) / |old|, where that is a number."""

    def __str__(self) -> str:
        change = "" if self.relative is None else f" ({self.relative:+.2%})"
        return f"{self.id}: {self.old} -> {self.new}{change}"


@dataclass(frozen=True)
class Changed:
    """A claim that was judged or written otherwise before."""

    place: str
    id: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.place}: {self.id}: {self.old} -> {self.new}"


@dataclass(frozen=True)
class Standing:
    """A claim that stands in only one of the builds."""

    place: str
    id: str
    text: str
    verdict: str

    def __str__(self) -> str:
        bad = "" if self.verdict == "fine" else f" ({self.verdict})"
        return f"{self.place}: {self.id} says {self.text}{bad}"


@dataclass(frozen=True)
class Difference:
    """All that moved between two builds."""

    added: tuple[Standing, ...]
    removed: tuple[Standing, ...]
    values: tuple[Moved, ...]
    texts: tuple[Changed, ...]
    verdicts: tuple[Changed, ...]

    def __bool__(self) -> bool:
        return any((self.added, self.removed, self.values, self.texts, self.verdicts))

    def as_json(self) -> dict[str, Any]:
        """The same as a JSON object of lists."""
        return asdict(self)

    def __str__(self) -> str:
        titles = {
            "added": self.added, "removed": self.removed, "value moved": self.values,
            "text changed": self.texts, "verdict changed": self.verdicts,
        }  # fmt: skip
        parts = [
            f"{title} ({len(items)})\n" + "\n".join(f"  {item}" for item in items)
            for title, items in titles.items()
            if items
        ]
        return "\n\n".join(parts) or "nothing moved"


def compare(old: Ledger, new: Ledger) -> Difference:
    """What moved from one build's ledger to another's. Raises ValueError for ledgers of two languages."""
    if old.language != new.language:
        raise ValueError(f"a ledger in {old.language!r} and one in {new.language!r} hold different texts")
    pairs = list(_pairs(old.entries, new.entries))
    both = [(before, after) for before, after in pairs if before and after]
    return Difference(
        added=tuple(_standing(after) for before, after in pairs if after and not before),
        removed=tuple(_standing(before) for before, after in pairs if before and not after),
        values=tuple(_moved(both)),
        texts=tuple(
            Changed(after.place, after.id, before.text, after.text)
            for before, after in both
            if before.text != after.text
        ),
        verdicts=tuple(
            Changed(after.place, after.id, before.verdict, after.verdict)
            for before, after in both
            if before.verdict != after.verdict
        ),
    )


def _pairs(
    old: Sequence[LedgerEntry], new: Sequence[LedgerEntry]
) -> Iterator[tuple[LedgerEntry | None, LedgerEntry | None]]:
    left: dict[tuple[str, str, str], list[LedgerEntry]] = {}
    for entry in old:
        left.setdefault(_key(entry), []).append(entry)
    found: dict[int, LedgerEntry] = {}
    # Equal texts find each other first, so that a claim put in front of another does not look like a rewriting.
    for same_text in (True, False):
        for place, entry in enumerate(new):
            candidates = left.get(_key(entry), [])
            match = next((c for c in candidates if not same_text or c.text == entry.text), None)
            if place not in found and match is not None:
                candidates.remove(match)
                found[place] = match
    for place, entry in enumerate(new):
        yield found.get(place), entry
    for candidates in left.values():
        for entry in candidates:
            yield entry, None


def _key(entry: LedgerEntry) -> tuple[str, str, str]:
    return entry.document, entry.role, entry.id


def _standing(entry: LedgerEntry) -> Standing:
    return Standing(entry.place, entry.id, entry.text, entry.verdict)


def _moved(both: Sequence[tuple[LedgerEntry, LedgerEntry]]) -> Iterator[Moved]:
    """Each measurement once, however often it is quoted."""
    seen: set[str] = set()
    for before, after in both:
        same = before.value == after.value or (before.value != before.value and after.value != after.value)
        if after.id not in seen and not (same and before.unit == after.unit):
            seen.add(after.id)
            yield Moved(after.id, value_text(before), value_text(after), _relative(before, after))


def _relative(before: LedgerEntry, after: LedgerEntry) -> float | None:
    if before.unit != after.unit:
        return None
    old, new = _exact(before.value), _exact(after.value)
    if not old or new is None:
        return None
    return float((new - old) / abs(old))


def _exact(value: Value | None) -> Fraction | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return Fraction(value)
    except (ValueError, OverflowError):  # NaN or infinite
        return None
