"""What every test is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

# What a developer's shell may set and a fresh machine does not: no test may lean on it.
os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.fixture(autouse=True)
def own_docutils_namespace() -> Iterator[None]:
    """Take back the directives and roles that a test's Sphinx left registered: docutils has one list a process."""
    if "sphinx.util.docutils" not in sys.modules:
        yield
        return
    from sphinx.util.docutils import docutils_namespace

    with docutils_namespace():
        yield
