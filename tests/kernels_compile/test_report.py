"""The report on compiled kernels: right on good ones, and red on kernels made to be bad in one respect."""

import json

import pytest

from tests.kernels_compile.processes import compiling

pytest.importorskip("triton", reason="kernels are compiled by triton")

TARGETS = ("sm_80", "sm_90", "sm_100")
OWN = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}


@pytest.fixture(scope="module")
def reports():
    """By name and target, of the kernels made for it."""
    done = compiling("-m", "tests.kernels_compile.purpose_made")
    assert done.returncode == 0, done.stderr
    return {(report["name"], report["target"]): report for report in json.loads(done.stdout)["reports"]}


@pytest.mark.parametrize("target", TARGETS)
def test_a_good_kernel_has_no_problem(reports, target):
    """Its products are the target's own matrix instruction and no other; it spills nothing and fits."""
    report = reports["good", target]
    assert report["problems"] == []
    assert [name for name, count in report["matrix"].items() if count] == [OWN[target]]
    assert 0 < report["registers"] <= 255
    assert report["stack_bytes"] == report["spill_bytes"] == 0
    assert 0 < report["shared_bytes"] <= report["shared_limit"]
    assert report["warps"] == 4
    assert (report["tensor_columns"] > 0) == (target == "sm_100")
    assert report["occupancy"]["warps"] == 4 * report["occupancy"]["blocks"] > 0


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_that_spills_is_red(reports, target):
    """An output of 128 × 256 in four warps needs 256 registers a thread for itself alone, and there are 255."""
    report = reports["spills", target]
    assert report["registers"] == 255
    assert report["spill_bytes"] > 0
    assert report["stack_bytes"] > 0
    assert [problem.partition(":")[0] for problem in report["problems"]] == ["spills", "stack"]
    assert report["problems"][0] == f"spills: {report['spill_bytes']} bytes stored and loaded for want of registers"


@pytest.mark.parametrize(("target", "limit"), [("sm_80", 163 * 1024), ("sm_90", 227 * 1024), ("sm_100", 227 * 1024)])
def test_shared_memory_over_the_limit_is_red(reports, target, limit):
    """Triton compiles it without a word; no block of it fits on the card."""
    report = reports["shares too much", target]
    assert report["problems"] == [f"shared memory: {report['shared_bytes']} bytes, and {target} has {limit} a block"]
    assert report["shared_bytes"] > limit
    assert report["occupancy"]["blocks"] == 0


@pytest.mark.parametrize("target", TARGETS)
def test_a_missing_matrix_instruction_is_red(reports, target):
    """A product added up by hand has none."""
    assert reports["no matrix", target]["problems"] == [f"matrix instructions: expected {OWN[target]}, found none"]


def test_none_need_be_where_nothing_is_multiplied(reports):
    """The same kernel is fine where it says that it has no matrix product."""
    assert reports["no matrix and none wanted", "sm_90"]["problems"] == []


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_few_rows_want_the_instruction_that_takes_them(reports, target):
    """The newer instructions begin at 64 rows: a tile of 16 is right with mma.sync."""
    report = reports["few rows", target]
    assert report["problems"] == []
    assert report["matrix"]["mma.sync"] > 0


def test_another_instruction_than_the_targets_own_is_red(reports):
    """mma.sync on a Hopper card is not wgmma, and the report says what was found instead."""
    report = reports["few rows, unsaid", "sm_90"]
    assert report["problems"] == ["matrix instructions: expected wgmma.mma_async, found mma.sync"]


def test_copies_of_whole_tiles_are_counted(reports):
    """A kernel with descriptors has them where the target has the unit, and plain loads where it has not."""
    assert reports["described", "sm_90"]["tma"] > 0
    assert reports["described", "sm_80"]["tma"] == 0
    assert reports["good", "sm_90"]["tma"] == 0


def test_divisibility_reaches_the_compiler(reports):
    """Without it another program comes out: elements are loaded one by one, and take more registers."""
    assert reports["nothing known", "sm_80"]["registers"] > reports["good", "sm_80"]["registers"]


def test_a_kernel_that_does_not_compile_is_red(reports):
    """It has a line of its own, with the compiler's reason; the others are reported all the same."""
    (problem,) = reports["wrong", "sm_90"]["problems"]
    assert problem.startswith("does not compile: ")
    assert problem.endswith("rows must be none at all")


REFUSED = """
from tests.kernels_compile import purpose_made
from attnbook.kernels.compile import {call}
from attnbook.kernels.targets import SM_90
from attnbook.kernels.variant import Variant
try:
    {call}({arguments})
except {error} as error:
    print(error)
"""


def test_an_interpreting_process_is_refused():
    """There is nothing to compile there, and the error says what to do."""
    code = REFUSED.format(call="report", arguments="", error="RuntimeError")
    assert compiling("-c", code, TRITON_INTERPRET="1").stdout.strip() == (
        "triton: this process interprets the kernels (TRITON_INTERPRET is set), and a kernel is either interpreted or "
        "compiled: compile in a process of its own, without TRITON_INTERPRET"
    )


def test_a_signature_of_another_kernel_is_refused():
    """The parameters stand in the kernel's order, all of them."""
    made = 'Variant("v", "test", purpose_made.product, {"b": "*bf16", "a": "*bf16"}, {})'
    code = REFUSED.format(call="compile_variant", arguments=f"{made}, SM_90", error="ValueError")
    assert compiling("-c", code).stdout.strip() == (
        "v: the signature has the parameters b, a, the kernel a, b, c, n, ROWS, COLUMNS, STEP"
    )
