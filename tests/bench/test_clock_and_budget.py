"""A GPU is timed by its own events; a run begins nothing that does not fit, and ends when its time is up."""

import signal
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from attnbook.bench.budget import Budget, TimeIsUp, stopped_after
from attnbook.bench.clock import CudaClock, WallClock, clock_of


class FakeCard:
    """Stands in for torch.cuda: it notes what is asked of it, and its own time passes as calls say."""

    def __init__(self):
        self.asked, self.at = [], 0.0

    def Event(self, enable_timing):
        card = self
        assert enable_timing

        class Event:
            def record(self):
                card.asked.append("record")
                self.at = card.at

            def synchronize(self):
                card.asked.append("wait")

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3  # milliseconds

        return Event()

    def _sleep(self, cycles):
        self.asked.append("sleep")
        self.slept = cycles

    def get_device_properties(self, device):
        return SimpleNamespace(L2_cache_size=50 << 20)

    def synchronize(self):
        self.asked.append("synchronize")


@pytest.fixture
def card(monkeypatch):
    """No GPU is here; memory is taken on the CPU."""
    made, empty = FakeCard(), torch.empty

    def on_the_cpu(*shape, device, **options):
        class Scratch(torch.Tensor):
            def zero_(self):
                made.asked.append("overwrite")
                made.scratch = self.numel()
                return self

        return empty(*shape, **options).as_subclass(Scratch)

    monkeypatch.setattr(torch, "cuda", made)
    monkeypatch.setattr(torch, "empty", on_the_cpu)
    return made


def test_a_call_is_timed_between_events_with_a_cold_cache_and_launched_ahead(card):
    """Overwrite twice the cache, sleep, first event, the call, last event, wait: the seconds between the events."""
    clock = CudaClock()

    def run():
        card.asked.append("run")
        card.at += 0.003

    assert clock.time(run) == pytest.approx(0.003)
    assert card.asked == ["overwrite", "sleep", "record", "run", "record", "wait"]
    assert card.scratch == 100 << 20
    assert card.slept == CudaClock.LONGEST_SLEEP * CudaClock.CYCLES  # how long launching takes is not known yet
    clock.time(run)
    assert 0 < card.slept < CudaClock.LONGEST_SLEEP * CudaClock.CYCLES / 2
    clock.wait()
    assert card.asked[-1] == "synchronize"


def test_a_torch_without_sleep_is_timed_without(card, monkeypatch):
    """The name is private: where it is gone, launching is part of the time."""
    monkeypatch.delattr(FakeCard, "_sleep")
    assert CudaClock().time(lambda: None) == 0.0
    assert "sleep" not in card.asked


def test_the_cpu_is_timed_by_the_wall():
    """From call to return."""
    assert isinstance(clock_of("cpu"), WallClock)
    assert 0.002 <= clock_of("cpu").time(lambda: time.sleep(0.002)) < 1


class At:
    """A clock at some time."""

    def __init__(self, at):
        self.at = at

    def now(self):
        return self.at


def test_what_does_not_fit_is_refused_with_the_numbers():
    """A budget runs from its start; a case fits while its plan is not above what is left."""
    clock = At(100.0)
    budget = Budget(480.0, clock, clock.now())
    assert (budget.left(), budget.refuses(480.0)) == (480.0, "")
    clock.at += 450
    assert budget.refuses(30.0) == ""
    assert budget.refuses(31.0) == "planned for 31 s, and 30 s of 480 s are left"
    clock.at += 40
    assert budget.left() == -10.0
    assert budget.refuses(1.0) == "planned for 1 s, and 0 s of 480 s are left"


def test_what_runs_on_is_stopped():
    """No `except Exception` on the way keeps it; afterwards no alarm is left."""
    before = signal.getsignal(signal.SIGALRM)

    def run_on():
        end = time.perf_counter() + 10
        while time.perf_counter() < end:
            try:
                time.sleep(0.001)
            except Exception:  # as a compiler does
                continue

    start = time.perf_counter()
    with pytest.raises(TimeIsUp), stopped_after(0.05):
        run_on()
    assert time.perf_counter() - start < 5
    with stopped_after(0.05):
        pass
    time.sleep(0.1)
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_that_was_set_before_goes_on():
    """With what is left of it: a test's own time limit, for example."""
    rung = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    pending, _ = signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeIsUp), stopped_after(0.05):
            time.sleep(10)
        assert rung == []
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= 0.15
        time.sleep(0.3)
        assert rung == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, pending)


def test_outside_the_main_thread_nothing_is_stopped():
    """Alarms belong to the main thread; elsewhere the block runs to its end."""
    ended = []

    def run():
        with stopped_after(0.01):
            time.sleep(0.05)
        ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ended == [True]
