"""How much memory a call holds at its worst moment, from every allocation and release that torch makes for it.

This is measured while the call really runs; a formula for the same number belongs beside it, not in its place. What
was there before the call, its inputs, is not in it; what it returns is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that torch held on the CPU at a time, above those at the start, while `call()` ran."""
    return peak_and_kept(call)[0]


def peak_and_kept(call: Callable[[], object]) -> tuple[int, int]:
    """The most bytes at a time, and those that are still held while what `call()` returned is alive."""
    with _without_the_profilers_words():
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
            returned = call()
        found = seen.profiler
        assert found is not None
        events = sorted(found.kineto_results.events(), key=lambda event: event.start_ns())
    held = most = 0
    for event in events:
        if event.name() == "[memory]":  # above 0 an allocation, below 0 a release
            held += event.nbytes()
            most = max(most, held)
    del returned  # it had to live until here
    return most, held


@contextmanager
def _without_the_profilers_words() -> Iterator[None]:
    """The profiler reports its start and end on file descriptor 2, below Python; a page would show that."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
