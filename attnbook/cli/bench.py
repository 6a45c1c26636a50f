"""`attnbook bench`: how fast it is here, on the CPU or on a GPU, against what a user would pick instead."""

from __future__ import annotations

from collections.abc import Sequence

from attnbook.bench import let_threads_sleep


def main(arguments: Sequence[str]) -> int:
    """Run the suite of `attnbook.bench`; its exit status."""
    let_threads_sleep()
    from attnbook.bench.command import main as run

    return run(arguments, prog="attnbook bench")
