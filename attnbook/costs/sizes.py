"""Sizes of memory as people write them: GB is 10⁹ bytes and GiB is 2³⁰."""

from __future__ import annotations

import re

UNITS = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip


def size_in_bytes(text: str) -> int:
    """Bytes from a number and a unit, as 80GiB, 1.5 TB or 512MiB; large or small letters.

    Raises ValueError for anything else, a number without its unit too.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in UNITS:
        raise ValueError(f"expected a size with its unit, as 80GiB or 80GB, got {text!r}")
    return round(float(found[1]) * UNITS[found[2].upper()])
