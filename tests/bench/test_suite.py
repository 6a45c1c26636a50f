"""Every case of the suite runs at a small size, and its sides agree."""

import math
import re

import pytest
import torch

from attnbook.bench import attention_cases, memory
from attnbook.bench.case import CannotRun, Setting, judge
from attnbook.bench.suite import SUITE

TINY = Setting(quick=True, seconds=0.0)
CASES = {case.name: case for case in SUITE}


@pytest.fixture
def tiny(monkeypatch):
    """Lengths of at most 64 tokens."""
    monkeypatch.setattr(Setting, "length", lambda setting, t: 64 if t > 1_000 else 16)


def test_targets_are_those_of_the_project():
    """What is asked of each case, in one place; no name twice."""
    asked = {
        "auto-512": "≤ 3.0 %", "auto-1024": "≤ 3.0 %", "auto-2048": "≤ 3.0 %", "auto-mask": "≤ 3.0 %",
        "auto-groups": "≤ 3.0 %", "auto-training": "≤ 3.0 %", "window-forward": "≥ 14.00x",
        "window-training": "≥ 6.00x", "window-memory": "≥ 16.00x", "window-flex": "≥ 1.00x",
        "varlen-equal": "≥ 10.00x", "varlen-skewed": "≥ 7.00x", "decode-f32-1": "≥ 2.00x", "decode-f32-8": "≥ 2.00x",
        "decode-bf16-1": "≥ 6.00x", "decode-bf16-8": "≥ 6.00x", "causal-forward": "≥ 0.60x", "memory-flat": "≤ 1.50x",
        "smollm2-generation": "≥ 1.40x", "smollm2-loading": "≥ 2.50x", "moe": "≥ 2.00x",
    }  # fmt: skip
    assert len(CASES) == len(SUITE)
    assert {name: str(case.target) for name, case in CASES.items()} == asked


@pytest.mark.parametrize("name", [name for name in CASES if not re.search("memory|window-flex|smollm2", name)])
def test_every_case_runs_and_its_sides_agree(name, tiny):
    """It gives a figure and a median for each side."""
    verdict = judge(CASES[name], TINY)
    assert (verdict.word, verdict.why) == ("quick", "")
    assert math.isfinite(verdict.finding.figure)
    assert len(verdict.finding.sides) >= 2
    assert all(seconds > 0 for seconds in verdict.finding.sides.values())
    assert verdict.finding.ran in (("",) if name == "moe" else ("tiled", "sdpa"))


@pytest.mark.parametrize("name", ["window-forward", "window-training", "varlen-skewed"])
def test_a_side_that_is_wrong_is_not_timed(name, tiny, monkeypatch):
    """A window one too long, or a mask that leaks, is no faster way to the same result."""
    monkeypatch.setattr(attention_cases, "window_mask", lambda t, window, device: torch.ones(t, t, dtype=torch.bool))
    monkeypatch.setattr("attnbook.bench.packed_cases.block_diagonal", lambda x: torch.ones(int(x.sum()), int(x.sum())))
    verdict = judge(CASES[name], TINY)
    assert verdict.word == "WRONG"
    assert verdict.why.startswith("attnbook and sdpa, mask differ by")


def test_the_window_of_the_other_side_is_the_window():
    """A query sees itself and the two before it."""
    expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert attention_cases.window_mask(5, 3, "cpu").int().tolist() == expected


def test_flex_without_a_compiler_is_not_run(monkeypatch):
    """It says what is missing, and is no pass."""
    from torch._inductor.exc import InvalidCxxCompiler

    def compiled(function):
        def call(*inputs, **options):
            raise InvalidCxxCompiler

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    verdict = judge(CASES["window-flex"], TINY)
    assert (verdict.word, verdict.why) == ("not run", "needs a C++ compiler")


def test_memory_beyond_inputs_and_result_is_measured():
    """All scores of 8 heads at once are there at the peak, and a dense mask; the tiles take far less."""
    scores = 8 * 1024**2 * 4 / memory.MIB
    naive, tiled = memory.extra("naive causal", 1024, 0), memory.extra("tiled causal", 1024, 0)
    assert 2 * scores <= naive < 5 * scores
    assert tiled < scores


def test_memory_that_cannot_be_measured_is_not_run(monkeypatch):
    """The other process's last words are the reason."""
    with pytest.raises(CannotRun, match=r"^measuring the memory of tiled window ended with 1: ValueError: window is 0"):
        memory.extra("tiled window", 64, 0)
    with pytest.raises(CannotRun, match="ValueError: side is 'naive': expected one of tiled window, sdpa window"):
        memory.extra("naive", 64, 0)
    verdict = judge(CASES["memory-flat"], Setting("cuda"))
    assert (verdict.word, verdict.why) == ("not run", "memory is measured on the CPU")
