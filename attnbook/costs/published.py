"""What others say of the models in the table: their numbers of weights, in `published.csv`, and those in their names.

Kept apart from the shapes, so that a count from a shape can be compared with what was stated by somebody else. In
billions, as text, with as many digits as the statement has. Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("published.csv")
BILLION = 10**9

_NAMED = re.compile(r"(?:(?P<experts>\d+)x)?(?P<size>\d+(?:\.\d+)?)[bB](?:-A(?P<active>\d+(?:\.\d+)?)[bB])?\b")


@dataclass(frozen=True)
class Published:
    """The weights of a model in billions: all of them, and those that a token uses ("" where nobody says).

    `without_input_embedding`: the maker leaves the input's embedding out of the active ones.
    """

    model: str
    total: str
    active: str
    without_input_embedding: bool
    source: str


def published() -> dict[str, Published]:
    """What is stated of each model, in the order of the table; models of which nothing was found are not in it."""
    return dict(_table())


@cache
def _table() -> dict[str, Published]:
    from csv import DictReader

    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            row["model"]: Published(
                row["model"], row["total"], row["active"], bool(row["without_input_embedding"]), row["source"]
            )
            for row in DictReader(file)
        }


def in_name(name: str) -> tuple[str, str]:
    """The sizes in a model's name, in billions: all and active, "" where there is none; 8x7B says 56."""
    found = _NAMED.search(name)
    if found is None:
        return "", ""
    size = Decimal(found["size"]) * int(found["experts"] or 1)
    return str(size), found["active"] or ""


def agrees(count: int, stated: str, digits: int = 2) -> bool:
    """Does a count, rounded or cut, give what is stated in billions, to so many digits (fewer where it has fewer)?

    Both ways are in use: 32.76 billions are called 32B, and 6.74 are called 7B. Raises ValueError for no positive
    number.
    """
    said = Decimal(stated)
    if said <= 0:
        raise ValueError(f"stated: expected a number above 0, got {stated!r}")
    written = len(said.as_tuple().digits)
    unit = Decimal(1).scaleb(said.adjusted() - min(digits, written) + 1)
    got = Decimal(count) / BILLION
    return any(
        (got / unit).to_integral_value(way) == (said / unit).to_integral_value(way)
        for way in (ROUND_HALF_UP, ROUND_DOWN)
    )
