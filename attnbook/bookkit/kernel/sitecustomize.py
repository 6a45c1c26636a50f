"""Python imports this file when it starts: it puts the trace of a chapter's dependencies in place.

Its folder is put before all others on PYTHONPATH while a chapter runs, so that processes that the chapter starts are
traced too. A `sitecustomize` that this one hides is run after it.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import chapter_trace  # type: ignore[import-not-found]  # beside this file, which is on the path

chapter_trace.start()

_here = str(Path(__file__).parent)
_others = [entry for entry in sys.path if entry != _here]
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
