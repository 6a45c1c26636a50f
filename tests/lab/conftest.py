"""One desk for a module of tests: torch, where a solution wants it, is loaded once."""

from collections.abc import Iterator

import pytest

from tests.lab.run import Desk, desk


@pytest.fixture(scope="module")
def judged() -> Iterator[Desk]:
    with desk() as made:
        yield made
