"""Nothing half-written is taken for finished: what a stopped build leaves, and pages that could not be written.

Sphinx reads again the pages whose files changed, and writes those it read. After a build that was stopped between the
two, or in the middle of one, neither rule holds: a file in the doctree folder says that a build is at work, and one
that finds such a file starts afresh. And Sphinx says of a page that it could not write, on a full disk say, with a
warning only, and ends well; here it ends there.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

UNFINISHED = "unfinished-"
"""With the builder's name, names the file that lies in the doctree folder while the builder is at work."""


def setup(app: Sphinx) -> None:
    """Mark builds as unfinished until they are finished."""
    app.connect("config-inited", _look)
    app.connect("builder-inited", _begin)
    app.connect("build-finished", _end, priority=900)  # others may still write


def _look(app: Sphinx, config: Config) -> None:
    """Comes before the environment is loaded."""
    if any(Path(app.doctreedir).glob(f"{UNFINISHED}*")):
        Path(app.doctreedir, "environment.pickle").unlink(missing_ok=True)


def _begin(app: Sphinx) -> None:
    marker = _marker(app)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    logging.getLogger("sphinx.sphinx.builders.html").addFilter(_refuse_unwritten)


def _refuse_unwritten(record: logging.LogRecord) -> bool:
    """Let no warning pass that a file could not be written: raise what was the matter."""
    for argument in record.args if isinstance(record.args, tuple) else ():
        if isinstance(argument, OSError):
            raise argument
    return True


def _end(app: Sphinx, error: Exception | None) -> None:
    warned = app._fail_on_warnings and app._warncount  # an unchanged page warns once: have all of them warn again
    if error is None and not warned:
        _marker(app).unlink(missing_ok=True)


def _marker(app: Sphinx) -> Path:
    return Path(app.doctreedir, UNFINISHED + app.builder.name)
