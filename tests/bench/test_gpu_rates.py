"""From times to rates, shares and ratios; and torch's own ways, beside which the kernels are timed: each is right."""

import math
import warnings

import pytest
import torch

from attnbook.bench import ceilings, rates, rivals, truth
from attnbook.bench.case import Disagree, Setting
from tests.bench.stand_ins import Ticks


def test_rates_shares_and_ratios_follow_from_the_times():
    """10¹² operations in 2 ms are 500 TFLOP/s; the ceiling does twice that, the better rival 1.5 times as much."""
    seconds = {"ours": 2e-3, "good": 1.5e-3, "bad": 4e-3, "limit": 1e-3}

    class Known(Ticks):
        def time(self, run):
            return seconds[run()]

    others = rivals.Rivals({"cudnn": lambda: "good", "flash": lambda: "bad"}, {"flex": "needs a compiler"})
    ceiling = ("mm", ceilings.Ceiling(lambda: "limit", 10**12))
    setting = Setting(seconds=0.0, timer=Known())
    how = {"amount": 10**12, "unit": "TFLOP/s", "ceiling": ceiling}
    found = rates.measured(lambda: "ours", others, setting, **how)
    assert found.figure == pytest.approx(500)
    assert found.rates == pytest.approx({"attnbook": 500, "cudnn": 666.67, "flash": 250, "mm": 1000}, rel=1e-4)
    assert found.shares == pytest.approx({"of mm": 0.5, "over cudnn": 0.75})
    assert (found.spread, found.absent, found.rate_unit) == (0.0, {"flex": "needs a compiler"}, "TFLOP/s")
    half = ("copy", ceilings.Ceiling(lambda: "limit", 5 * 10**11))
    found = rates.measured(lambda: "ours", others, setting, amount=10**12, unit="GB/s", ceiling=half, as_share=True)
    assert (found.figure, found.rates["attnbook"]) == (pytest.approx(100), pytest.approx(500_000))
    alone = rates.measured(lambda: "ours", rivals.Rivals(), setting, **how)
    assert list(alone.shares) == ["of mm"]


def test_a_wrong_rival_is_no_rival_and_a_wrong_kernel_is_not_timed():
    """By the same measure, twice as wide for torch."""
    others = rivals.Rivals({"right": lambda: 1.9, "wrong": lambda: 2.1})
    rates.keep_right(1.0, others, lambda error: error)
    assert list(others.sides) == ["right"]
    assert others.absent == {"wrong": "wrong: the error is 2.1 times what rounding explains"}
    for error in (1.1, math.nan):
        with pytest.raises(Disagree, match=r"^the error is \S+ times what rounding explains"):
            rates.keep_right(error, others, lambda error: error)


def test_rows_are_judged_apart():
    """Late rows are small: an error that the first rows' size would hide is found, in the last heads, too."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, h, 256, 16, generator=generator).bfloat16() for h in (4, 2, 2))
    judge_rows = rates.rows_judge(q, k, v, {"is_causal": True}, rows=32)
    out = truth.dense(q.float(), k.float(), v.float(), is_causal=True)[0].bfloat16()
    assert judge_rows(out) <= 1
    for b, h, row in ((0, 0, 0), (0, 0, 255), (1, 3, 255)):
        wrong = out.clone()
        wrong[b, h, row] *= 1.2
        assert judge_rows(wrong) > 1
    assert judge_rows(truth.dense(q.float(), k.float(), v.float())[0].bfloat16()) > 1


def test_a_rival_that_cannot_run_is_named():
    """With the first line of its reason; a backend refuses, and another is not there."""
    others = rivals.Rivals()
    q = torch.randn(1, 2, 8, 16)
    others.add("cudnn", lambda: rivals.sdpa("cudnn", q, q, q, is_causal=True))
    others.add("flash", lambda: rivals.sdpa("flash", q, q, q, is_causal=True))
    assert list(others.sides) == ["flash"]
    assert others.absent["cudnn"].startswith("RuntimeError: ")
    assert "\n" not in others.absent["cudnn"]


def test_flex_hides_what_the_others_hide(monkeypatch):
    """Causal at the bottom right, a window, documents, grouped heads; as it is without being compiled."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, h, t, 16, generator=generator) for h, t in ((4, 128), (2, 256), (2, 256)))
    behind = torch.arange(128)[:, None] + 128 - torch.arange(256)
    document = torch.arange(256) // 100
    same = (document[:128, None] == document) & (behind >= 0)
    for options, mask in (
        ({"is_causal": True}, behind >= 0),
        ({"is_causal": True, "window": 40}, (behind >= 0) & (behind < 40)),
        ({"is_causal": True, "document": document}, same),
        ({"is_causal": False}, behind > -1000),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not compiled
            out = rivals.flex(q, k, **options)(q, k, v)
        torch.testing.assert_close(out, truth.dense(q, k, v, mask=mask)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", ["window_size", "is_causal"])
def test_both_names_of_causal_packed_sequences_are_tried(option, monkeypatch):
    """Torch 2.10 has `is_causal`, later ones a window open to the left."""
    from torch.nn.attention import varlen

    given = {}

    def attend(q, k, v, ends, more_ends, longest, longest_k, **options):
        if set(options) != {option}:
            raise TypeError("unexpected keyword")
        given.update(options)
        return q

    monkeypatch.setattr(varlen, "varlen_attn", attend)
    q = torch.randn(3, 1, 2)
    assert rivals.packed(q, q, q, torch.tensor([0, 3]), 3) is q
    assert given == {"window_size": {"window_size": (-1, 0)}, "is_causal": {"is_causal": True}}[option]


def test_torchs_grouped_products_are_a_mixture_of_experts():
    """The same y as the formula, also for an expert without tokens."""
    generator = torch.Generator().manual_seed(0)
    x, gate, up = (torch.randn(shape, generator=generator) for shape in ((24, 16), (4, 16, 32), (4, 16, 32)))
    down = torch.randn(4, 32, 16, generator=generator)
    experts = torch.stack([torch.arange(24) % 2, torch.full((24,), 3)], 1)
    weights = torch.rand(24, 2, generator=generator)
    half = [w.bfloat16() for w in (gate, up, down)]
    y = rivals.GroupedExperts(*half)(x.bfloat16(), experts, weights)
    right, plain = (
        truth.experts(x.bfloat16().to(kind), experts, weights, *(w.to(kind) for w in half))
        for kind in (torch.float64, torch.bfloat16)
    )
    assert truth.excess(y, right, plain) <= 2
