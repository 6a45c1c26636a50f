"""Experiments run again at other seeds, and what the book says of them judged on each."""

from __future__ import annotations

import ast
import importlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from attnbook.claims.entries import LedgerEntry
from attnbook.claims.judge import Verdict, judge
from attnbook.measure import Measurement, Value, format_value

STRIDE = 1000
"""Between one seed and the next: experiments draw from `seed + 1` and its like, too, and must not meet each other."""


@dataclass(frozen=True)
class Job:
    """An experiment with the settings that some chapter gives it."""

    experiment: str
    """Dotted name of its module."""
    settings: Mapping[str, str]
    """Keyword to `repr` text, `seed` among them."""
    entries: tuple[LedgerEntry, ...]
    """What the book says of its measurements."""

    @property
    def name(self) -> str:
        """The last word of the dotted name."""
        return self.experiment.rpartition(".")[2]

    def seeds(self, count: int) -> list[int]:
        """`count` seeds, none of them the book's."""
        own = int(ast.literal_eval(self.settings["seed"]))
        return [own + STRIDE * step for step in range(1, count + 1)]


def jobs(entries: Iterable[LedgerEntry], words: Sequence[str] = ()) -> list[Job]:
    """The experiments that take a seed, in the book's order, each with all that the book says of it.

    With `words`, only those of whose experiment, page or ids one holds a word.
    """
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[LedgerEntry]] = {}
    for entry in entries:
        if entry.experiment and "seed" in entry.settings and entry.value is not None:
            key = entry.experiment, tuple(sorted(entry.settings.items()))
            found.setdefault(key, []).append(entry)
    made = [Job(experiment, dict(settings), tuple(said)) for (experiment, settings), said in found.items()]
    return [job for job in made if not words or any(word in _line(entry) for word in words for entry in job.entries)]


def _line(entry: LedgerEntry) -> str:
    return f"{entry.experiment} {entry.document} {entry.id}"


@dataclass(frozen=True)
class Run:
    """What one seed gave: measurements by id, or none and what was raised."""

    seconds: float
    made: Mapping[str, Measurement]
    raised: str = ""


def timed(experiment: str, settings: Mapping[str, str], seed: int) -> Run:
    """Run an experiment at a seed, in a worker."""
    keywords = {key: ast.literal_eval(text) for key, text in settings.items()}
    keywords["seed"] = seed
    start = time.perf_counter()
    try:
        findings = importlib.import_module(experiment).run(**keywords)
    except Exception as error:  # one seed's failure is a result, and the others go on
        return Run(time.perf_counter() - start, {}, f"{type(error).__name__}: {error}")
    return Run(time.perf_counter() - start, {measurement.id: measurement for measurement in findings})


@dataclass
class Held:
    """One claim over all seeds."""

    entry: LedgerEntry
    values: dict[int, Value] = field(default_factory=dict)
    broken: dict[int, Verdict] = field(default_factory=dict)
    """The seeds at which the text would be wrong."""
    fragile: list[int] = field(default_factory=list)
    """The seeds at which the text is right and the build would still doubt it, because of the spread measured there."""
    missing: list[int] = field(default_factory=list)
    """The seeds at which nothing was measured under the id."""

    @property
    def fine(self) -> bool:
        """Is the text right at every seed?"""
        return not self.broken and not self.missing

    def add(self, seed: int, made: Mapping[str, Measurement]) -> None:
        """Judge the text on what a seed gave, as the build would."""
        measurement = made.get(self.entry.id)
        if measurement is None:
            self.missing.append(seed)
            return
        self.values[seed] = measurement.value
        verdict = judge(self.entry.text, measurement, self.entry.role, self.entry.language)
        if verdict.status == "fragile":
            self.fragile.append(seed)
        elif verdict.status != "fine":
            self.broken[seed] = verdict

    def worst(self) -> int:
        """The broken seed whose value lies farthest outside."""
        low, high = self.entry.accepts.low, self.entry.accepts.high

        def outside(seed: int) -> float:
            value = float(self.values[seed])
            if value != value:
                return float("inf")
            return max(0.0 if low is None else low - value, 0.0 if high is None else value - high)

        return max(self.broken, key=outside)

    def __str__(self) -> str:
        """One line: where, what the text says, what the seeds gave."""
        entry, runs = self.entry, len(self.values) + len(self.missing)
        says = f"{entry.place}: {entry.role} {entry.id} says {entry.text}"
        told = []
        if entry.role == "claim":
            says += f" (accepts {entry.accepts.text})"
            told.append(_reach(self.values.values()))
        if self.broken and entry.role == "claim":
            seed = self.worst()
            worst = f"worst {format_value(self.values[seed])} at seed {seed}"
            told.append(f"BROKEN at {len(self.broken)} of {runs} seeds, {worst}")
        elif self.broken:
            told.append(f"FALSE at {len(self.broken)} of {runs} seeds: {', '.join(map(str, self.broken))}")
        if self.missing:
            told.append(f"NOT MEASURED at {len(self.missing)} of {runs} seeds")
        if self.fragile:
            told.append(f"the build would call it fragile at {len(self.fragile)}")
        return f"{says}: {', '.join(part for part in told if part)}" if any(told) else says


def _reach(values: Iterable[Value]) -> str:
    """From the smallest to the largest; a NaN is the largest."""
    ordered = sorted(values, key=lambda value: (value != value, value))
    if not ordered:
        return ""
    low, high = format_value(ordered[0]), format_value(ordered[-1])
    return f"{low} to {high}" if low != high else f"always {low}"
