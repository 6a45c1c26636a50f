"""Sides must agree before they are timed; times are taken in turns; a figure is held to its target."""

import math
import time

import pytest
import torch

from attnbook.bench.case import (
    CannotRun,
    Case,
    Disagree,
    Finding,
    Setting,
    Target,
    Times,
    compared,
    in_turns,
    judge,
    must_agree,
    shown,
)

QUICK = Setting(seconds=0.0)


def test_a_target_is_met_on_its_own_side():
    """At least and at most include the target; NaN meets neither."""
    assert Target(2.0).met(2.0)
    assert not Target(2.0).met(1.99)
    assert Target(3.0, at_least=False, unit="%").met(3.0)
    assert not Target(3.0, at_least=False, unit="%").met(3.01)
    assert not Target(2.0).met(math.nan)
    assert not Target(2.0, at_least=False).met(math.nan)
    assert (str(Target(2.0)), str(Target(3.0, at_least=False, unit="%"))) == ("≥ 2.00x", "≤ 3.0 %")
    assert shown(1.239, "x") == "1.24x"


def sleeping(seconds):
    """A case whose other side sleeps so long, against a side that sleeps 2 ms."""

    def run(setting):
        sides = {"ours": lambda: time.sleep(0.002), "other": lambda: time.sleep(seconds)}
        times = in_turns(sides, setting)
        return Finding(times.ratio("other", "ours"), times.medians())

    return Case("sleep", "sleeping", Target(3.0), run)


def test_a_slow_other_side_meets_the_target_and_a_quick_one_misses_it():
    """The ratio is how many times as long the other side takes."""
    assert judge(sleeping(0.02), QUICK).word == "ok"
    missed = judge(sleeping(0.002), QUICK)
    assert missed.word == "MISSED"
    assert 0.3 < missed.finding.figure < 3
    assert judge(sleeping(0.002), Setting(quick=True, seconds=0.0)).word == "quick"


def test_what_keeps_a_case_from_running_is_its_verdict():
    """Not run and disagreement are no passes; other errors are bugs and come through."""

    def raising(error):
        def run(setting):
            raise error

        return Case("x", "x", Target(1.0), run)

    found = judge(raising(CannotRun("needs a C++ compiler")), QUICK)
    assert (found.word, found.why, found.finding) == ("not run", "needs a C++ compiler", None)
    assert judge(raising(Disagree("a and b differ")), Setting(quick=True)).word == "WRONG"
    with pytest.raises(ZeroDivisionError):
        judge(raising(ZeroDivisionError()), QUICK)


def test_sides_run_in_turns_and_backwards_every_other_round():
    """After one warm-up each, at least three rounds however long they take, at most as many as asked."""
    ran = []
    sides = {"a": lambda: ran.append("a"), "b": lambda: ran.append("b")}
    times = in_turns(sides, QUICK)
    assert "".join(ran) == "ab" + "ab" + "ba" + "ab"
    assert {name: len(x) for name, x in times.rounds.items()} == {"a": 3, "b": 3}
    ran.clear()
    in_turns(sides, Setting(seconds=60.0), most=5)
    assert len(ran) == 2 * (1 + 5)


def test_sides_that_disagree_are_not_timed():
    """What is run to see whether they agree is the warm-up."""
    ran = []

    def side(name, value):
        return lambda: ran.append(name) or torch.tensor([value])

    compared({"a": side("a", 1.0), "b": side("b", 1.0)}, QUICK)
    assert "".join(ran) == "ab" + "ab" + "ba" + "ab"
    ran.clear()
    with pytest.raises(Disagree):
        compared({"a": side("a", 1.0), "b": side("b", 2.0)}, QUICK)
    assert ran == ["a", "b"]


def test_a_ratio_is_the_median_of_the_rounds_ratios():
    """A round that a neighbour slows as a whole counts like any other."""
    times = Times({"ours": [1.0, 10.0, 1.0], "other": [2.0, 20.0, 3.0]})
    assert times.ratio("other", "ours") == 2.0
    assert times.medians() == {"ours": 1.0, "other": 3.0}


def test_agreement_is_up_to_rounding():
    """Rounding passes; anything more, a NaN, or a second result that differs does not."""
    x = torch.linspace(-1, 1, 7)
    must_agree(a=x, b=x + 1e-6)
    must_agree(a=(x, x), b=(x, x * (1 + 1e-6)))
    for wrong in (x + 1e-4, x.flip(0), x * math.nan, torch.where(x > 0, x, math.inf)):
        with pytest.raises(Disagree, match=r"^a and b differ by \S+, and rounding explains"):
            must_agree(a=x, b=wrong)
        with pytest.raises(Disagree):
            must_agree(a=(x, x), b=(x, wrong))
    half = x.bfloat16()
    must_agree(a=half, b=half * (1 + 2**-7))
    with pytest.raises(Disagree):
        must_agree(a=half, b=half * 1.05)


def test_quick_sizes_are_an_eighth():
    """But never too few for a tile."""
    assert Setting(quick=True).length(16_384) == 2_048
    assert Setting(quick=True).length(64) == 32
    assert Setting().length(16_384) == 16_384


def test_a_target_for_one_card_is_asked_of_that_card_only():
    """Elsewhere the case is measured and judged by nothing; a case that asks nothing is never missed."""
    asked = Target(353.0, unit="TFLOP/s", card="H200")
    case = Case("forward", "made up", asked, lambda setting: Finding(300.0, {}))
    assert str(asked) == "≥ 353.0 TFLOP/s"
    assert judge(case, Setting(seconds=0.0, machine="NVIDIA H200")).word == "MISSED"
    assert judge(case, Setting(seconds=0.0, machine="NVIDIA A100-SXM4-40GB")).word == "measured"
    nothing = Target(None, unit="GB/s")
    assert (str(nothing), nothing.met(0.0), nothing.met(math.nan)) == ("–", True, False)
    assert judge(Case("copy", "made up", nothing, lambda setting: Finding(1.0, {})), QUICK).word == "measured"


def test_the_spread_of_a_median_shrinks_with_rounds_and_ignores_a_slow_one():
    """As a part of the median; about the standard deviation of medians of so many normal times."""
    generator = torch.Generator().manual_seed(0)
    times = 1 + 0.1 * torch.randn(200, 100, generator=generator)
    medians = times.median(1).values.std().item()
    spreads = [Times({"a": row.tolist()}).spread("a") for row in times]
    assert sum(spreads) / len(spreads) == pytest.approx(medians, rel=0.2)
    assert Times({"a": [1.0, 1.1, 1.2, 99.0, 1.1]}).spread("a") < 0.1
    assert Times({"a": [2.0, 2.0, 2.0]}).spread("a") == 0.0


class Steps:
    """A clock that a test moves: every call takes as long as its name is told to."""

    def __init__(self, **seconds):
        self.seconds, self.at = seconds, 0.0

    def now(self):
        return self.at

    def wait(self):
        pass

    def time(self, run):
        took = self.seconds[run()]
        self.at += took
        return took


def test_times_come_from_the_clock_that_is_given():
    """Rounds end when its time has passed, not the wall's."""
    clock = Steps(ours=0.25, other=1.0)
    times = in_turns({"ours": lambda: "ours", "other": lambda: "other"}, Setting(seconds=5.0, timer=clock))
    assert times.medians() == {"ours": 0.25, "other": 1.0}
    assert times.ratio("other", "ours") == 4.0
    assert len(times.rounds["ours"]) == 5  # 1.25 s each: the fifth begins within 5 s and ends beyond
