"""How a number written by a person is read, in Japanese, Korean and English. Pure: text in, exact amounts out."""

from __future__ import annotations

from attnbook.claims.numerals.parse import LEXICONS, read
from attnbook.claims.numerals.reading import Reading, Unreadable
from attnbook.claims.numerals.units import UNITS, Unit

LANGUAGES = tuple(LEXICONS)

__all__ = ["LANGUAGES", "UNITS", "Reading", "Unit", "Unreadable", "read"]
