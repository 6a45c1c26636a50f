"""`attnbook kernels`: what it prints, and its exit status; the compiling itself is tested in tests/kernels_compile."""

import json

import pytest

pytest.importorskip("triton", reason="the kernels are written in it")

from attnbook.cli import main
from attnbook.errors import BackendUnavailable
from attnbook.kernels import compile as compiler
from attnbook.kernels.occupancy import Occupancy
from attnbook.kernels.report import Report

GOOD = Report(
    "flash-forward", "flash", "forward_kernel", "sm_90", 128, "bf16", "wgmma.mma_async", 227 * 1024, registers=213,
    shared_bytes=161 * 1024, warps=8, matrix={"mma.sync": 0, "wgmma.mma_async": 24}, tma=6,
    occupancy=Occupancy(1, 8, 0.125, ("registers", "shared memory")),
)  # fmt: skip
BAD = Report("decode", "decode", "split_kernel", "sm_80", 64, "bf16", "mma.sync", 163 * 1024, stack_bytes=8)
BROKEN = Report("moe", "moe", "count_kernel", "sm_100", None, "fp32", "", 227 * 1024, error="ValueError: no")


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command on reports that are given; its status, and what it printed on both streams."""

    def run(*arguments, reports=(GOOD,)):
        def report(targets, only, *, processes):
            asked.extend([[target.name for target in targets], only, processes])
            return list(reports)

        asked = []
        monkeypatch.setattr(compiler, "report", report)
        status = main(["kernels", *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err, asked

    return run


def test_a_table_of_good_kernels(command):
    """A line each, under a heading, and how many there were in how much time; status 0."""
    status, printed, _, asked = command()
    head, line, empty, total = printed.splitlines()
    assert status == 0
    assert " ".join(head.split()) == "kernel target regs stack spill shared of warps full limited by matrix tma"
    assert " ".join(line.split()) == (
        "flash-forward sm_90 213 0 0 161.0 227 8 12.5% registers, shared memory wgmma.mma_async 24 6"
    )
    assert empty == ""
    assert total.startswith("1 compiled by triton ")
    assert total.endswith(" s, 0 with a problem")
    assert asked[0] == ["sm_80", "sm_90", "sm_100"]


def test_a_problem_is_status_1(command):
    """It stands under the kernel's line; the others are printed all the same."""
    status, printed, _, _ = command(reports=(GOOD, BAD, BROKEN))
    assert status == 1
    assert "    ! stack: 8 bytes a thread, expected none\n" in printed
    assert "    ! matrix instructions: expected mma.sync, found none\n" in printed
    assert "    ! does not compile: ValueError: no\n" in printed
    assert printed.splitlines()[-1].endswith(", 2 with a problem")


def test_json(command):
    """All fields and the problems, with the version and the time."""
    status, printed, _, _ = command("--json", reports=(GOOD, BAD))
    data = json.loads(printed)
    assert status == 1
    assert set(data) == {"triton", "seconds", "reports"}
    good, bad = data["reports"]
    assert (good["registers"], good["occupancy"]["share"], good["matrix"]["wgmma.mma_async"]) == (213, 0.125, 24)
    assert good["problems"] == []
    assert len(bad["problems"]) == 2


def test_targets_and_names_are_chosen(command):
    """Targets come in the order of their generations; a word is part of a name, an operation or a kernel."""
    _, _, _, (targets, only, processes) = command("--target", "sm_100", "--target", "sm_80", "--only", "split",
                                                  "--processes", "1")  # fmt: skip
    assert targets == ["sm_80", "sm_100"]
    assert processes == 1
    variant = type("V", (), {"name": "decode-x", "operation": "decode", "kernel": type("split_kernel", (), {})})
    assert only(variant)
    assert not compiler.select(["forward"])(variant)
    assert compiler.select([])(variant)


@pytest.mark.parametrize(
    ("arguments", "reports", "message"),
    [
        (["--target", "sm_70"], [GOOD], "there is no target 'sm_70'; there are: sm_80, sm_90, sm_100"),
        (["--only", "nothing"], [], "no kernel is called nothing"),
        (["--processes", "0"], [GOOD], "--processes 0: expected 1 or more"),
    ],
)
def test_what_cannot_be_done_is_status_2(command, arguments, reports, message):
    """And says why."""
    status, printed, error, _ = command(*arguments, reports=reports)
    assert (status, printed, error) == (2, "", f"attnbook kernels: {message}\n")


def test_without_a_compiler_it_is_status_2(monkeypatch, capsys):
    """The reason is the compiler's own: no triton, or a process that interprets."""

    def unavailable(*arguments, **options):
        raise BackendUnavailable("triton is not installed")

    monkeypatch.setattr(compiler, "report", unavailable)
    assert main(["kernels"]) == 2
    assert capsys.readouterr().err == "attnbook kernels: triton is not installed\n"
