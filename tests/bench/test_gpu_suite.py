"""The GPU's cases, without one: the plan, what is counted, and a whole run with stand-ins for kernels and clock."""

import json
import math
import subprocess
import sys

import pytest
import torch

from attnbook.bench import ceilings, gpu_attention, gpu_decode, gpu_moe
from attnbook.bench.budget import Budget
from attnbook.bench.case import CannotRun, Setting, judge
from attnbook.bench.command import MINUTES, RESERVE, run_all
from attnbook.bench.gpu_suite import CHECKS, GPU_SUITE, SPEED
from attnbook.bench.kernel_checks import kernels
from attnbook.bench.report import status
from tests.bench import stand_ins

CASES = {case.name: case for case in GPU_SUITE}


@pytest.fixture
def tiny(monkeypatch):
    """Sizes that the stand-ins do in no time; FlexAttention is not compiled, for that takes seconds each."""
    monkeypatch.setattr(Setting, "length", lambda setting, t: 128 if t > 4_000 else 64 if t > 600 else 32)

    def compiled(function, **options):
        raise RuntimeError("nothing is compiled here")

    monkeypatch.setattr(torch, "compile", compiled)
    return Setting(quick=True, seconds=0.0, timer=stand_ins.Ticks())


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
    clock = stand_ins.Ticks()
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
