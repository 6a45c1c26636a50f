"""The steps of the lab, each in a file of its own beside its texts in three languages; loaded when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from attnbook.lab.step import Step

FILES: Final = {
    "1": "three_lines",
    "2": "root_d",
    "3": "stable_softmax",
    "4": "causal_mask",
    "5": "positions",
    "6": "heads",
    "7": "tiles",
    "capstone": "capstone",
    "chapter-1": "exercise01_rows",
    "chapter-2": "exercise02_others",
    "chapter-4": "exercise04_merge",
    "chapter-7": "exercise07_rotate",
    "chapter-8": "exercise08_norm",
    "chapter-9b": "exercise09_cache",
    "chapter-9c": "exercise09_route",
    "chapter-9d": "exercise09_window",
}
"""Key to module, in the order of the lab; what the exercises of the book's chapters ask for comes after its steps."""


def step(key: str | int) -> Step:
    """The step of that key, as 1 or "capstone"; a KeyError names the ones that there are."""
    if str(key) not in FILES:
        raise KeyError(f"there is no step {key!r} in the lab: it has {', '.join(FILES)}")
    found = import_module(f"attnbook.lab.steps.{FILES[str(key)]}").STEP
    assert isinstance(found, Step)
    return found
