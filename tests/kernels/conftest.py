"""Where the kernels run: on the GPU if there is one, else in the interpreter, which this process must be told of.

`python -m pytest tests/kernels` in a shell with TRITON_INTERPRET=1 runs a file by hand; `tests/test_kernels.py` runs
each in a process of its own. On a machine with a GPU the same files run on it, unchanged.
"""

from __future__ import annotations

import pytest
import torch

from attnbook.kernels import outputs
from tests.kernels.device import DEVICE


@pytest.fixture
def device() -> str:
    """Where the tensors of a test lie."""
    return DEVICE


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel is to write is NaN before, or the largest integer: whatever it leaves out shows."""

    def empty(shape, like, dtype=None):
        x = torch.empty(tuple(shape), dtype=dtype or like.dtype, device=like.device)
        return x.fill_(torch.nan if x.is_floating_point() else torch.iinfo(x.dtype).max)

    monkeypatch.setattr(outputs, "empty", empty)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is marked, so that `-m kernels` finds it and `-m "not kernels"` leaves it out.

    NumPy, in which the interpreter calculates, warns of what is no error on a GPU: lanes that nobody reads hold
    anything.
    """
    for item in items:
        if "tests/kernels/" in item.path.as_posix():
            item.add_marker("kernels")
            item.add_marker(pytest.mark.filterwarnings("ignore:.* encountered in :RuntimeWarning"))
            # the interpreter of Triton 3.6 and 3.7.0, of itself
            item.add_marker(pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning"))
