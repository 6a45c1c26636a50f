"""What a case is: sides that must agree, a figure made of their times or their memory, and what is asked of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """What is asked of a figure: at least so much, or at most."""

    value: float
    at_least: bool = True
    unit: str = "x"

    def met(self, figure: float) -> bool:
        """Is the figure on the right side? NaN is on none."""
        return figure >= self.value if self.at_least else figure <= self.value

    def __str__(self) -> str:
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

    def length(self, t: int) -> int:
        """A number of tokens: an eighth of it where it must be quick."""
        return max(t // 8, 32) if self.quick else t


@dataclass(frozen=True)
class Finding:
    """A figure and where it comes from: each side's median, in seconds or MiB; `ran`: what ran on our side."""

    figure: float
    sides: Mapping[str, float]
    unit: str = "s"
    note: str = ""
    ran: str = ""


@dataclass(frozen=True)
class Case:
    """A name, what is compared in words, what is asked, and the function that measures it."""

    name: str
    what: str
    target: Target
    run: Callable[[Setting], Finding]


@dataclass(frozen=True)
class Verdict:
    """How a case ended."""

    case: Case
    word: str
    """"ok", "MISSED", "WRONG" (the sides disagree), "not run", or "quick" (ran, and was too small to judge)."""
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


def compared(sides: Mapping[str, Callable[[], Any]], setting: Setting, *, most: int = 200) -> Times:
    """`in_turns` for sides whose results agree; raises Disagree otherwise, and times nothing."""
    must_agree(**{name: run() for name, run in sides.items()})
    return in_turns(sides, setting, most=most, warm=True)


def in_turns(sides: Mapping[str, Callable[[], Any]], setting: Setting, *, most: int = 200, warm: bool = False) -> Times:
    """Time all sides in turns, every other round backwards; each runs once before unless all are `warm`.

    Rounds end when `setting.seconds` have passed, at ROUNDS at the earliest and at `most` at the latest.
    """
    finish = synchroniser(setting.device)
    for run in () if warm else sides.values():
        run()
    finish()
    times = Times({name: [] for name in sides})
    end = time.perf_counter() + setting.seconds
    for round_ in range(most):
        for name in list(sides)[:: 1 if round_ % 2 == 0 else -1]:
            start = time.perf_counter()
            sides[name]()
            finish()
            times.rounds[name].append(time.perf_counter() - start)
        if round_ + 1 >= ROUNDS and time.perf_counter() > end:
            break
    return times


def synchroniser(device: str) -> Callable[[], None]:
    """What waits until a device has done all it was asked for."""
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


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
