"""The lab: write the three lines yourself, and be told what is wrong with them.

`check(1, attention)` in a notebook, `attnbook lab check` in a terminal. Loads NumPy at most, and that only when asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbook.lab.checking import check as check
    from attnbook.lab.exercise import solution as solution
    from attnbook.lab.hints import hint as hint

_PLACES = {"check": "checking", "hint": "hints", "solution": "exercise"}
"""Public name to the module that has it."""

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
