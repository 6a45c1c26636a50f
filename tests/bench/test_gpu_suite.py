"""The GPU's cases, without one: the plan, the arithmetic, and a whole run with stand-ins for kernels and clock."""

import json
import math
import subprocess
import sys
import warnings

import pytest
import torch

from attnbook.bench import ceilings, gpu_attention, gpu_decode, gpu_moe, rates, rivals, truth
from attnbook.bench.budget import Budget
from attnbook.bench.case import CannotRun, Disagree, Setting, judge
from attnbook.bench.command import MINUTES, RESERVE, run_all
from attnbook.bench.gpu_suite import CHECKS, GPU_SUITE, SPEED
from attnbook.bench.kernel_checks import kernels
from attnbook.bench.report import status
from tests.bench import stand_ins

CASES = {case.name: case for case in GPU_SUITE}


class Ticks:
    """A clock on which everything takes a millisecond, and which runs the call all the same."""

    def __init__(self, seconds=1e-3):
        self.seconds, self.at = seconds, 0.0

    def now(self):
        return self.at

    def wait(self):
        pass

    def time(self, run):
        run()
        self.at += self.seconds
        return self.seconds


@pytest.fixture
def tiny(monkeypatch):
    """Sizes that the stand-ins do in no time; FlexAttention is not compiled, for that takes seconds each."""
    monkeypatch.setattr(Setting, "length", lambda setting, t: 128 if t > 4_000 else 64 if t > 600 else 32)

    def compiled(function, **options):
        raise RuntimeError("nothing is compiled here")

    monkeypatch.setattr(torch, "compile", compiled)
    return Setting(quick=True, seconds=0.0, timer=Ticks())


def test_what_is_asked_is_in_one_place():
    """Of an H200 and of no other card; no name twice."""
    asked = {case.name: str(case.target) for case in SPEED if case.target.value is not None}
    assert asked == {
        "forward-causal-4k": "≥ 353.0 TFLOP/s", "backward-causal-4k": "≥ 300.0 TFLOP/s",
        "decode-32x8k": "≥ 80.0 % of copy", "decode-1x128k": "≥ 80.0 % of copy", "decode-paged": "≥ 80.0 % of copy",
        "moe-64e": "≥ 80.0 % of mm", "moe-8e": "≥ 80.0 % of mm",
    }  # fmt: skip
    assert {case.target.card for case in SPEED if case.target.value is not None} == {"H200"}
    assert all(case.target.asked_of("NVIDIA H200") for case in SPEED if case.name in asked)
    assert not any(case.target.asked_of("NVIDIA H100 80GB HBM3") for case in SPEED)
    assert {str(case.target) for case in CHECKS} == {"≤ 1.00x"}
    assert len(CASES) == len(GPU_SUITE)


def test_the_plan_fits_with_what_starting_takes():
    """All cases together, and the quarter of a minute that importing torch and finding the card may take."""
    assert MINUTES["cuda"] == 8
    assert sum(case.planned for case in GPU_SUITE) + 15 <= 60 * MINUTES["cuda"] - RESERVE["cuda"]


def test_every_kernel_is_checked_before_it_is_timed():
    """What a case needs comes before it, and nothing is timed without a check."""
    names = list(CASES)
    for i, case in enumerate(GPU_SUITE):
        assert set(case.needs) <= set(names[:i]), case.name
    assert all(case.needs for case in SPEED)
    assert {name for case in SPEED for name in case.needs} | {"check-route"} == {case.name for case in CHECKS}


def test_operations_and_bytes_are_counted():
    """By hand: 4 · pairs · d forward, 10 backward; keys and values once; three products of the experts."""
    causal = gpu_attention.Problem(4, 16, 4_096)
    pairs = 4 * 16 * 4_096 * 4_097 // 2
    assert causal.operations(backward=False) == 4 * pairs * 128
    assert causal.operations(backward=True) == 10 * pairs * 128
    window = gpu_attention.Problem(1, 16, 16_384, window=1_024)
    assert window.operations(backward=False) == 4 * 16 * (1_024 * 16_384 - 1_024 * 1_023 // 2) * 128
    full = gpu_attention.Problem(4, 32, 4_096, n_kv_heads=8, is_causal=False)
    assert full.operations(backward=False) == 4 * 4 * 32 * 4_096**2 * 128
    assert gpu_decode.cache_bytes(32, 8_192) == 2 * 2 * 32 * 8 * 8_192 * 128 == 1 << 30
    layer = gpu_moe.Layer(8_192, 2_048, 64, 8, 1_024)
    assert layer.operations == 3 * 2 * 65_536 * 2_048 * 1_024
    assert layer.operations_backward == 2 * layer.operations
    setting = Setting(quick=True)
    assert ceilings.copying(setting).amount == 2 << 21
    assert ceilings.multiplying(setting, "float32").amount == 2 * 256**3
    assert ceilings.COPIED == 1 << 30


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


@pytest.mark.parametrize("name", list(CASES))
def test_every_case_runs_with_stand_ins(name, tiny, monkeypatch):
    """Checks find the stand-ins right; speeds have a rate for every side that ran, and name those that did not."""
    stand_ins.put_in_place(monkeypatch)
    case = CASES[name]
    verdict = judge(case, tiny)
    assert (verdict.word, verdict.why) == ("quick", "")
    found = verdict.finding
    assert math.isfinite(found.figure)
    if name.startswith("check-"):
        assert 0 <= found.figure <= 1
        return
    assert set(found.rates) == set(found.sides)
    assert found.rate_unit in ("GB/s", "TFLOP/s")
    if case in SPEED:
        assert next(iter(found.sides)) == "attnbook"
        assert any(share.startswith("of ") for share in found.shares)
        compared = set(found.sides) - {"attnbook", "mm", "copy"} | set(found.absent)
        assert len(compared) >= (2 if not name.startswith(("moe", "forward-window")) else 1)


WRONG = {
    "check-forward": {"flash_attention_forward": lambda *x, **how: _scaled(stand_ins.attention_forward(*x, **how))},
    "check-backward": {"flash_attention_backward": lambda *x, **how: _scaled(stand_ins.attention_backward(*x, **how))},
    "check-varlen": {"flash_varlen_backward": lambda *x, **how: _scaled(stand_ins.varlen_backward(*x, **how))},
    "check-paged": {"decode_paged_forward": lambda q, k, v, table, *x, **how: stand_ins.paged_forward(
        q, k, v, table.flip(0), *x, **how)},
    "check-route": {"moe_route": lambda x, router, top_k: stand_ins.routing.route(x, router.flip(0), top_k=top_k)},
    "check-experts": {"moe_experts_forward": lambda x, *rest: stand_ins.experts_forward(x, *rest) * 1.1},
    "check-experts-backward": {"moe_experts_backward": lambda *x, **how: _scaled(
        stand_ins.experts_backward(*x, **how))},
    "forward-gqa": {"flash_attention_forward": lambda q, k, v, *x, **how: stand_ins.attention_forward(
        q, k.roll(1, 1), v.roll(1, 1), *x, **how)},
    "backward-gqa": {"flash_attention_backward": lambda *x, **how: _scaled(stand_ins.attention_backward(*x, **how))},
    "decode-paged": {"decode_paged_forward": lambda q, k, v, table, *x, **how: stand_ins.paged_forward(
        q, k, v, table.flip(0), *x, **how)},
    "moe-64e": {"moe_experts_forward": lambda x, *rest: stand_ins.experts_forward(x, *rest) * 1.1},
    "moe-backward": {"moe_experts_backward": lambda *x, **how: _scaled(stand_ins.experts_backward(*x, **how))},
    "varlen-skewed": {"flash_varlen_forward": lambda *x, **how: _scaled(stand_ins.varlen_forward(*x, **how))},
}  # fmt: skip


def _scaled(results):
    return tuple(None if x is None else x * 1.1 for x in results)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_found(name, tiny, monkeypatch):
    """By its check, and again by the case that would time it."""
    stand_ins.put_in_place(monkeypatch, **WRONG[name])
    verdict = judge(CASES[name], tiny)
    assert (verdict.word, verdict.finding) == ("WRONG", None)
    assert verdict.why


def test_decoding_that_depends_on_the_batch_is_found(tiny, monkeypatch):
    """A last bit is enough."""

    def in_a_batch(q, *x, **how):
        out, lse = stand_ins.decode_forward(q, *x, **how)
        return (out if len(q) == 1 else torch.nextafter(out, out + 1)), lse

    stand_ins.put_in_place(monkeypatch, decode_decode_forward=in_a_batch)
    verdict = judge(CASES["check-decode"], tiny)
    assert verdict.word == "WRONG"
    assert verdict.why.endswith("a sequence alone gives other bits than in a batch of 2")


def test_a_whole_run_keeps_its_time_and_times_nothing_that_is_wrong(tiny, monkeypatch):
    """What did not go well takes what needs it along; what does not fit any more is named; the rest runs on."""
    stand_ins.put_in_place(monkeypatch, **WRONG["check-experts"])
    clock = Ticks()
    verdicts = []

    def ended(verdict):
        verdicts.append(verdict)
        clock.at += 15 if verdict.finding else 0

    run_all(GPU_SUITE, tiny, Budget(300.0, clock, 0.0), ended)
    words = {verdict.case.name: (verdict.word, verdict.why) for verdict in verdicts}
    assert list(words) == list(CASES)
    assert words["check-experts"][0] == "WRONG"
    assert words["moe-64e"] == ("not run", "check-experts before it: WRONG")
    assert words["moe-backward"] == ("not run", "check-experts before it: WRONG")
    assert words["forward-causal-4k"] == ("quick", "")
    late = [why for word, why in words.values() if why.startswith("planned for")]
    assert late
    assert all(why.endswith("s of 300 s are left") for why in late)
    assert clock.at <= 300
    assert status(verdicts) == 1


def test_a_lent_machine_needs_torch_and_triton_only():
    """Of the package only kernels and costs are loaded; what the reference needs beside torch is not."""
    program = (
        "import sys, json\nsys.modules['array_api_compat'] = sys.modules['hypothesis'] = None\n"
        "import attnbook.bench.gpu_suite, attnbook.bench.command\nfrom attnbook.cli import bench\n"
        "from attnbook.kernels import decode, flash, moe\n"
        "print(json.dumps(sorted({name.split('.')[1] for name in sys.modules if name.startswith('attnbook.')})))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    own = {"bench", "cli", "costs", "kernels"} | {"errors", "measure", "records", "shapes", "shapes_moe", "typed"}
    assert set(json.loads(made.stdout)) == own


def test_kernels_that_cannot_run_here_are_not_run():
    """On the CPU without the interpreter, with the kernels' own reason."""
    with pytest.raises(CannotRun, match=r"^triton: the tensors are on .*cpu"):
        kernels("flash", Setting())
