"""How many bytes a call holds at its peak, measured: every allocation and every release by torch on the CPU, in order.

No clock and no other process has a part in it, so that the number is the same each time. No experiment itself; the
experiments on memory share it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most bytes that were held at one time while `call` ran, beyond what was there before; its result included.

    Threads count together. Memory that torch does not take itself, in a library for example, is not seen.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler writes about itself to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        kept = call()  # to the end of the block: a result that nobody holds would be released inside it
    held = most = 0
    for event in found.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":  # bytes taken, or given back if below 0
            held += event.nbytes()
            most = max(most, held)
    del kept
    return most
