"""One thing to break, and the claim that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DRIFTED = ("drift", "false", "not finite", "fragile")
"""What a claim says when the measurement is no longer what the sentence says."""


class Stale(Exception):
    """The mutation no longer fits what it wants to break."""


@dataclass(frozen=True)
class Mutation:
    """Replace `old`, which stands exactly once in the file, by `new`; the claim `killer` must fail with a status `by`.

    `why` names the mistake as a person would.
    """

    why: str
    path: str
    old: str
    new: str
    killer: str
    by: tuple[str, ...] = DRIFTED

    @property
    def in_package(self) -> bool:
        """Does it break what is measured, code or a record, rather than text?"""
        return self.path.startswith(("attnbook/", "book/records/"))

    def apply(self, root: Path) -> str:
        """Break it in the tree at `root`; returns the file's text as it was. Raises Stale where `old` is not unique."""
        file = root / self.path
        text = file.read_text(encoding="utf-8")
        if (found := text.count(self.old)) != 1:
            raise Stale(f"{self.path} holds {self.old!r} {found} times, expected once")
        if self.old == self.new:
            raise Stale(f"{self.path}: {self.old!r} is replaced by itself")
        file.write_text(text.replace(self.old, self.new), encoding="utf-8")
        return text

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"
