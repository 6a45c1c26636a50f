"""A run that keeps to its time: what does not fit is not begun, and what runs on too long is stopped."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from attnbook.bench.clock import Clock


class TimeIsUp(BaseException):
    """The run's time has passed while a case ran. No `Exception`: nothing on the way may take it for one of its own."""


@dataclass(frozen=True)
class Budget:
    """So many seconds from `start`, all cases together."""

    seconds: float
    clock: Clock
    start: float

    @classmethod
    def from_now(cls, seconds: float, clock: Clock) -> Budget:
        """A budget that begins to run."""
        return cls(seconds, clock, clock.now())

    def left(self) -> float:
        """Seconds; below 0 once they are spent."""
        return self.start + self.seconds - self.clock.now()

    def refuses(self, planned: float) -> str:
        """Why a case of so many planned seconds is not begun; empty where it is."""
        left = self.left()
        if planned <= left:
            return ""
        return f"planned for {planned:.0f} s, and {max(left, 0):.0f} s of {self.seconds:.0f} s are left"


@contextlib.contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Raises TimeIsUp inside the block once so many seconds have passed; where the system has no alarm, never.

    It comes when the interpreter is back from what it has called: a compiler's single step may end first.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, stop)
    pending, _ = signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if pending:  # somebody else's alarm goes on
            signal.setitimer(signal.ITIMER_REAL, max(pending - (time.monotonic() - start), 1e-3))
