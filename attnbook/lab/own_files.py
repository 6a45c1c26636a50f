"""Other files of the reader's that theirs imports, as the capstone does with step 4: what they use, what they lack."""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path


def modules(folder: str) -> Iterator[types.ModuleType]:
    """The modules that were loaded from files of this folder; "" is none."""
    wanted = Path(folder).resolve()
    for module in list(sys.modules.values()) if folder else ():
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).is_absolute() and Path(file).resolve().parent == wanted:
            yield module


def raised_in(error: BaseException, folder: str) -> str | None:
    """The name of the file of this folder that raised the error itself; None for any other place.

    The file that is checked has no folder here: it is compiled under its bare name, or comes out of a notebook.
    """
    frames = traceback.extract_tb(error.__traceback__)
    file = Path(frames[-1].filename) if frames else Path()
    inside = bool(folder) and file.is_absolute() and file.resolve().parent == Path(folder).resolve()
    return file.name if inside else None
