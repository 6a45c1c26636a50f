"""What every test is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.kernels.device import RUNS

# Without a GPU the kernels need Triton's interpreter, and a process has it for all or not at all: test_kernels.py.
collect_ignore = [] if RUNS else ["kernels"]

# What a developer's shell may set and a fresh machine does not: no test may lean on it.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: what begins last while the other processes are done already makes everybody wait."""
    items.sort(key=lambda item: item.path.name not in ("test_kernels.py", "test_book.py"))


@pytest.fixture(autouse=True)
def own_docutils_namespace() -> Iterator[None]:
    """Take back the directives and roles that a test's Sphinx left registered: docutils has one list a process."""
    if "sphinx.util.docutils" not in sys.modules:
        yield
        return
    from sphinx.util.docutils import docutils_namespace

    with docutils_namespace():
        yield
