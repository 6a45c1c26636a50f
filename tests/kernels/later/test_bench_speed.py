"""The bench's cases call the kernels as they are: each runs whole at a small size, is right, and has a rate."""

import math

import pytest
import torch

from attnbook.bench import rates
from attnbook.bench.case import Setting, judge
from attnbook.bench.gpu_suite import SPEED
from tests.kernels.device import DEVICE

# One of each kind where Triton's interpreter runs it: the others differ in numbers only, and take minutes there.
KINDS = ("forward-gqa", "forward-window", "backward-gqa", "decode-32x8k", "decode-paged", "moe-64e", "moe-backward",
         "varlen-skewed")  # fmt: skip
CASES = [case for case in SPEED if DEVICE == "cuda" or case.name in KINDS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_runs(case, monkeypatch):
    """On a GPU with torch's sides, compiled ones too; in the interpreter with those that a CPU has."""
    monkeypatch.setattr(Setting, "length", lambda setting, t: 128 if DEVICE == "cuda" or t == 8_192 else 32)
    if DEVICE == "cpu":

        def compiled(function, **options):
            raise RuntimeError("compiling takes longer than all the rest")

        monkeypatch.setattr(torch, "compile", compiled)
        monkeypatch.setattr(rates, "MOST", 1)
    verdict = judge(case, Setting(DEVICE, quick=True, seconds=0.0))
    assert (verdict.word, verdict.why) == ("quick", "")
    assert all(math.isfinite(rate) and rate > 0 for rate in verdict.finding.rates.values())
    assert next(iter(verdict.finding.rates)) == "attnbook"
