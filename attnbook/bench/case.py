"""What a case is: sides that must agree, a figure made of their times or their memory, and what is asked of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnbook.bench.clock import Clock, clock_of

Sides = dict[str, Callable[[], Any]]
"""What is compared: a name and a call for each."""

ROUNDS = 3
"""The fewest rounds a figure is taken from, however long they take."""


class CannotRun(Exception):
    """A case can't be measured here; the text says what is missing."""


class Disagree(Exception):
    """Two sides give different results, so that comparing their speed says nothing."""


@dataclass(frozen=True)
class Target:
    """What is asked of a figure: at least so much, or at most; None asks nothing."""

    value: float | None
    at_least: bool = True
    unit: str = "x"
    card: str = ""
    """Asked only where the device's name has this in it."""

    def met(self, figure: float) -> bool:
        """Is the figure on the right side? NaN is on none."""
        if self.value is None:
            return not math.isnan(figure)
        return figure >= self.value if self.at_least else figure <= self.value

    def asked_of(self, machine: str) -> bool:
        """Is anything asked of this device?"""
        return self.value is not None and self.card in machine

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        return f"{'≥' if self.at_least else '≤'} {shown(self.value, self.unit)}"


def shown(figure: float, unit: str) -> str:
    """A figure with its unit, as the table has it."""
    return f"{figure:.2f}x" if unit == "x" else f"{figure:.1f} {unit}"


@dataclass(frozen=True)
class Setting:
    """Where and how thoroughly a case runs."""

    device: str = "cpu"
    quick: bool = False
    """Sizes and times are small: to see that everything runs, not how fast."""
    seconds: float = 8.0
    """About how long the rounds of one comparison may take together."""
    machine: str = ""
    """The device's own name: some targets are asked of one card only."""
    timer: Clock | None = None
    """What measures, where it is not the device's own clock."""

    @property
    def clock(self) -> Clock:
        """What measures times."""
        return self.timer or clock_of(self.device)

    def length(self, t: int) -> int:
        """A number of tokens: an eighth of it where it must be quick."""
        return max(t // 8, 32) if self.quick else t


@dataclass(frozen=True)
class Finding:
    """A figure and where it comes from: each side's median, in seconds or MiB; `ran`: what ran on our side.

    `rates`: each side again, as work in a second, in `rate_unit`. `shares`: our rate as a ratio to another side's,
    from the same rounds. `spread`: the standard deviation of our rate, or of the figure where there are no rates, as
    far as the rounds tell. `absent`: sides that could not run, and why.
    """

    figure: float
    sides: Mapping[str, float]
    unit: str = "s"
    note: str = ""
    ran: str = ""
    rates: Mapping[str, float] = field(default_factory=dict)
    rate_unit: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    spread: float | None = None
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A name, what is compared in words, what is asked, and the function that measures it."""

    name: str
    what: str
    target: Target
    run: Callable[[Setting], Finding]
    planned: float = 20.0
    """Seconds that it takes with all it has to compile: where fewer are left, it is not begun."""
    needs: tuple[str, ...] = ()
    """The cases that must have gone well before: speed of what is wrong says nothing."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended."""

    case: Case
    word: str
    """"ok", "MISSED", "WRONG" (results differ), "not run", "measured" (nothing is asked here), "quick" (ran, too small
    to judge), or "FAILED" (an error that nobody foresaw)."""
    finding: Finding | None = None
    why: str = ""


def judge(case: Case, setting: Setting) -> Verdict:
    """Run one case; whatever keeps it from running or agreeing becomes its verdict."""
    try:
        finding = case.run(setting)
    except CannotRun as error:
        return Verdict(case, "not run", why=str(error))
    except Disagree as error:
        return Verdict(case, "WRONG", why=str(error))
    if setting.quick:
        return Verdict(case, "quick", finding)
    if not case.target.asked_of(setting.machine):
        return Verdict(case, "measured", finding)
    return Verdict(case, "ok" if case.target.met(finding.figure) else "MISSED", finding)


@dataclass
class Times:
    """Seconds of each side, round by round."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def medians(self) -> dict[str, float]:
        """Of each side."""
        return {name: statistics.median(times) for name, times in self.rounds.items()}

    def ratio(self, over: str, under: str) -> float:
        """The median of the rounds' own ratios: what slows a whole round slows both and leaves its ratio alone."""
        pairs = zip(self.rounds[over], self.rounds[under], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def spread(self, name: str) -> float:
        """The standard deviation of a side's median as a part of it, from how the rounds scatter around it.

        1.25 · σ / √n for n rounds, and σ by the median distance from the median, which a few slow rounds leave alone.
        """
        times = self.rounds[name]
        middle = statistics.median(times)
        sigma = 1.4826 * statistics.median(abs(x - middle) for x in times)
        return math.sqrt(math.pi / 2) * sigma / math.sqrt(len(times)) / middle


def compared(sides: Mapping[str, Callable[[], Any]], setting: Setting, *, most: int = 200) -> Times:
    """`in_turns` for sides whose results agree; raises Disagree otherwise, and times nothing."""
    must_agree(**{name: run() for name, run in sides.items()})
    return in_turns(sides, setting, most=most, warm=True)


def in_turns(sides: Mapping[str, Callable[[], Any]], setting: Setting, *, most: int = 200, warm: bool = False) -> Times:
    """Time all sides in turns, every other round backwards; each runs once before unless all are `warm`.

    Rounds end when `setting.seconds` have passed, at ROUNDS at the earliest and at `most` at the latest.
    """
    clock = setting.clock
    for run in () if warm else sides.values():
        run()
    clock.wait()
    times = Times({name: [] for name in sides})
    end = clock.now() + setting.seconds
    for round_ in range(most):
        for name in list(sides)[:: 1 if round_ % 2 == 0 else -1]:
            times.rounds[name].append(clock.time(sides[name]))
        if round_ + 1 >= ROUNDS and clock.now() > end:
            break
    return times


def must_agree(**results: Any) -> None:
    """Raises Disagree unless all results are finite and equal up to rounding; each a tensor or a tuple of some.

    Up to 100 roundings of the largest number in float32 and float64, where sums are long; 4 in half precision, where
    both sides add in float32 and round once or twice.
    """
    import torch

    (name, first), *others = ((n, r if isinstance(r, tuple) else (r,)) for n, r in results.items())
    for other, second in others:
        for x, y in zip(first, second, strict=True):
            roundings = 4 if x.dtype in (torch.float16, torch.bfloat16) else 100
            limit = roundings * torch.finfo(x.dtype).eps * max(float(x.abs().max()), float(y.abs().max()))
            apart = float((x.double() - y.double()).abs().max())
            if not apart <= limit < math.inf:  # a NaN is never below anything
                raise Disagree(f"{name} and {other} differ by {apart:.3g}, and rounding explains {limit:.3g}")
