"""Where the kernels run: on the GPU if there is one, else in the interpreter, which this process must be told of.

`python -m pytest tests/kernels` in a shell with TRITON_INTERPRET=1 runs a file by hand; `tests/test_kernels.py` runs
each in a process of its own. On a machine with a GPU the same files run on it, unchanged.
"""

from __future__ import annotations

import pytest

from tests.kernels.device import DEVICE


@pytest.fixture
def device() -> str:
    """Where the tensors of a test lie."""
    return DEVICE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is marked, so that `-m kernels` finds it and `-m "not kernels"` leaves it out."""
    for item in items:
        if "tests/kernels/" in item.path.as_posix():
            item.add_marker("kernels")
