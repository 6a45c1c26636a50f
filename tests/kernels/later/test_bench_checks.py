"""The bench's checks find every kernel right, at small sizes; the same functions that a GPU's bench begins with."""

import pytest
import torch

from attnbook.bench import expert_checks, kernel_checks
from attnbook.bench.case import Setting, judge
from attnbook.bench.gpu_suite import CHECKS
from tests.kernels.device import DEVICE

SMALL = {515: 40, 517: 32, 771: 44, 803: 40, 2_051: 90}
"""Tokens for those of the samples; windows and pages still cut them into pieces."""


@pytest.mark.parametrize("case", CHECKS, ids=lambda case: case.name)
def test_the_kernels_are_right(case, monkeypatch):
    """With the options of the samples; garbage is refused on the way. Every dtype; bfloat16 in the interpreter."""
    monkeypatch.setattr(Setting, "length", lambda setting, t: SMALL.get(t, 20))
    if DEVICE == "cpu":
        monkeypatch.setattr(kernel_checks, "DTYPES", (torch.bfloat16,))
        monkeypatch.setattr(expert_checks, "DTYPES", (torch.bfloat16,))
    verdict = judge(case, Setting(DEVICE, quick=True))
    assert (verdict.word, verdict.why) == ("quick", "")
    assert 0 < verdict.finding.figure <= 1
