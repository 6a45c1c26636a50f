"""The compile report of the book: what it counts, on reports made by hand; the compiler itself is tested elsewhere."""

from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="the kernels are written in it")

from attnbook.experiments import kernel_compile
from attnbook.kernels.occupancy import Occupancy
from attnbook.kernels.report import Report
from attnbook.kernels.targets import TARGETS
from attnbook.kernels.variant import Variant

FORWARD, SPLIT, SORT = "flash-forward-d128-bf16-causal", "decode-split-d128-bf16", "moe-count"


def forward_kernel():
    """Only the name counts, of these three."""


def split_kernel():
    pass


def count_kernel():
    pass


KERNELS = {FORWARD: forward_kernel, SPLIT: split_kernel, SORT: count_kernel}
TILES = {"HEAD_DIM": 128, "TILE_Q": 128, "TILE_K": 64}
VARIANTS = (
    Variant(FORWARD, "flash", KERNELS[FORWARD], dict.fromkeys(TILES, "constexpr"), TILES, num_warps=8, head_dim=128),
    Variant(SPLIT, "decode", KERNELS[SPLIT], {}, {}, head_dim=128, rows=16),
    Variant(SORT, "moe", KERNELS[SORT], {}, {}, multiplies=False, dtype="fp32"),
)


def good(name, target):
    """The report of a kernel without a fault: with its target's instruction, and TMA where there is one."""
    wanted = {FORWARD: target.matrix_instruction, SPLIT: "mma.sync", SORT: ""}[name]
    return Report(
        name, "", KERNELS[name].__name__, target.name, 128, "bf16", wanted, target.shared_bytes, registers=200,
        shared_bytes=65536, warps=8, matrix={wanted: 8} if wanted else {},
        tma=3 if name == FORWARD and target.has_descriptors else 0, occupancy=Occupancy(1, 8, 0.125, ("registers",)),
    )  # fmt: skip


@pytest.fixture
def run(monkeypatch):
    """The experiment with reports that a test changes; its measurements by id."""

    def with_reports(change=lambda report: report, spills=68, unknown=230, without=""):
        def compiled(variant, target):
            usual = good(FORWARD, target)
            if variant.num_warps == 4:
                return replace(usual, spill_bytes=spills)
            return usual if variant.name == FORWARD else replace(usual, registers=unknown)

        def report(targets, only, *, processes):
            chosen = [variant for variant in VARIANTS if only(variant) and variant.name != without]
            return [change(good(variant.name, target)) for target in targets for variant in chosen]

        monkeypatch.setattr(kernel_compile, "MAIN", tuple(variant.name for variant in VARIANTS))
        monkeypatch.setattr(kernel_compile, "variants", lambda target: VARIANTS)
        monkeypatch.setattr(kernel_compile, "report", report)
        monkeypatch.setattr(kernel_compile, "compile_variant", compiled)
        return kernel_compile.run()

    return with_reports


def test_good_kernels(run):
    """Three kernels for three targets, nothing wrong with any."""
    found = run()
    counts = {name: found[f"gpu.{name}"] for name in ("targets", "kernels", "programs", "multiplying")}
    assert counts == {"targets": 3, "kernels": 3, "programs": 9, "multiplying": 6}
    for name in ("not_compiled", "spill_bytes", "stack_bytes", "over_limit", "without_matrix"):
        assert found[f"gpu.{name}"] == 0
    assert found["gpu.forward_registers_sm_90"] == 200
    assert found["gpu.forward_shared_sm_80"] == 65536
    assert found["gpu.forward_full_sm_100"] == 0.125
    held = [m for m in found if isinstance(m.value, bool)]
    assert len(held) == 5
    assert all(measured.value for measured in held)


@pytest.mark.parametrize(
    ("fault", "name", "value"),
    [
        ({"spill_bytes": 7}, "spill_bytes", 7),
        ({"stack_bytes": 8}, "stack_bytes", 8),
        ({"shared_bytes": TARGETS[1].shared_bytes + 1}, "over_limit", 1),
        ({"error": "wrong"}, "not_compiled", 1),
        ({"matrix": {"mma.sync": 8}}, "without_matrix", 1),
        ({"matrix": {"mma.sync": 8}}, "forward_has_own_instruction", False),
        ({"registers": 255}, "forward_registers_sm_90", 255),
    ],
)
def test_one_bad_program_is_noticed(run, fault, name, value):
    """The forward kernel on one target only, among all others."""
    found = run(
        lambda report: replace(report, **fault) if (report.name, report.target) == (FORWARD, "sm_90") else report
    )
    assert found[f"gpu.{name}"] == value


def test_a_report_that_notices_nothing_is_noticed(run):
    """No spill with half the threads, and the same program without divisibility."""
    found = run(spills=0, unknown=200)
    assert found["gpu.half_the_threads_spill"] is False
    assert found["gpu.divisibility_matters"] is False


def test_tma_on_a_card_that_has_none_is_noticed(run):
    """And none where there should be."""
    assert run(lambda report: replace(report, tma=1))["gpu.tma_where_it_is"] is False
    assert run(lambda report: replace(report, tma=0))["gpu.tma_where_it_is"] is False


def test_a_kernel_that_is_gone_is_named(run):
    """The page would go on without it otherwise."""
    with pytest.raises(LookupError, match="no variant is called moe-count"):
        run(without=SORT)


def test_traffic_by_hand(run):
    """One tile of 128 queries after the other, of 32: the i-th reads 128·i keys and values, its queries, and writes.

    Standard attention reads Q, K, V, and S twice (as S and as P), writes both and O.
    """
    scores, numbers = 4096 * 4096, 4096 * 128
    standard = 3 * numbers + 2 * scores + 2 * scores + numbers
    tiled = numbers + sum(128 * i * 256 for i in range(1, 33)) + numbers + 4096
    assert run()["gpu.traffic_ratio"] == pytest.approx(standard / tiled, rel=1e-12)
