"""How long a call takes: on the CPU by the wall, on a GPU by its own events.

Cases ask a `Clock` and nothing else, so that a test can give them one whose time it decides.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """What measures."""

    def now(self) -> float:
        """Seconds that only go forward: for budgets."""

    def wait(self) -> None:
        """Until the device has done all it was asked for."""

    def time(self, run: Callable[[], Any]) -> float:
        """Seconds that one call takes on the device."""


class WallClock:
    """The CPU: a call has ended when it returns."""

    def now(self) -> float:
        """Seconds of `time.perf_counter`."""
        return time.perf_counter()

    def wait(self) -> None:
        """Nothing runs on after a call."""

    def time(self, run: Callable[[], Any]) -> float:
        """From the call to its return."""
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


class CudaClock:
    """A GPU: the time between two events of its stream, around one call.

    - Before each call, memory twice the size of the L2 cache is overwritten: no call finds its input there by chance.
    - Then the stream sleeps for about as long as the host took to launch the same call last time (2 ms at most), so
      that launching is done when the first event passes: what is timed is the device's work. Where a call is too short
      to hide its launch in practice, it takes longer than this says. A call that itself waits for the device in the
      middle is timed with that wait.
    """

    LONGEST_SLEEP = 2e-3
    CYCLES = 2e9
    """Of sleeping for a second: a little above the clock of any card, so that a sleep is rather too long."""

    def __init__(self, device: str = "cuda") -> None:
        import torch

        self._torch = torch
        cache = torch.cuda.get_device_properties(device).L2_cache_size
        self._scratch = torch.empty(max(2 * cache, 1 << 26), dtype=torch.uint8, device=device)
        event: Any = torch.cuda.Event
        self._events = [event(enable_timing=True) for _ in range(2)]
        self._launch: dict[int, float] = {}
        self._sleep: Callable[[int], None] | None = getattr(torch.cuda, "_sleep", None)

    def now(self) -> float:
        """The host's time."""
        return time.perf_counter()

    def wait(self) -> None:
        """Until every stream of the device is done."""
        self._torch.cuda.synchronize()

    def time(self, run: Callable[[], Any]) -> float:
        """Between the events, in seconds."""
        first, last = self._events
        self._scratch.zero_()
        if self._sleep is not None:
            ahead = min(1.5 * self._launch.get(id(run), self.LONGEST_SLEEP) + 20e-6, self.LONGEST_SLEEP)
            self._sleep(int(ahead * self.CYCLES))
        start = time.perf_counter()
        first.record()
        run()
        last.record()
        self._launch[id(run)] = time.perf_counter() - start
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3


@functools.cache
def clock_of(device: str) -> Clock:
    """The clock of a device; one a device, for its scratch memory is large."""
    return WallClock() if device == "cpu" else CudaClock(device)
