"""What one process of `python -m tests.matrix` does. (A new process cannot import a function of a `__main__`.)"""

from __future__ import annotations

from tests.matrix.axes import Case


def failures(cases: list[Case]) -> list[tuple[Case, str]]:
    """The cases that are not right, each with what is wrong."""
    from tests.matrix.check import check, wide

    found = []
    for case in cases:
        try:
            check(case, times=wide(case))
        except Exception as error:  # whatever it is, it belongs to this case, and the others go on
            found.append((case, f"{type(error).__name__}: {error}".splitlines()[0]))
    return found


def one_thread() -> None:
    """One process a core is faster for small work than threads."""
    import torch

    torch.set_num_threads(1)
