"""`attnbook kernels`: what the compiler makes of every Triton kernel, without a GPU.

Exit status 1 where a kernel spills, wants more shared memory than its target has, lacks the target's matrix
instruction, or does not compile.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnbook.cli import FINE, FOUND, CannotRun, print_json
from attnbook.errors import BackendUnavailable

if TYPE_CHECKING:
    from attnbook.kernels.report import Report

HEAD = ("kernel", "target", "regs", "stack", "spill", "shared", "of", "warps", "full", "limited by", "matrix", "tma")


def main(arguments: Sequence[str]) -> int:
    """Compile, print a table or JSON, and say in the exit status whether anything is wrong."""
    parser = argparse.ArgumentParser(
        prog="attnbook kernels",
        description="Compile every Triton kernel for three generations of GPUs and report what the machine code uses. "
        "No GPU is needed, nothing is run, and no speed is claimed.",
        epilog="regs: 32-bit registers of a thread; stack, spill: bytes; shared, of: KiB of shared memory of a block, "
        "and of what the target has; full: at most so much of a multiprocessor's warps are in use; matrix, tma: how "
        "often the instruction stands in the program.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--target", metavar="sm_90", action="append", default=[],
        help="compile for this target only: sm_80, sm_90 or sm_100; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[],
        help="only variants whose name, operation or kernel holds this word; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--processes", metavar="N", type=int, default=min(2, os.cpu_count() or 1),
        help="how many compile side by side (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.processes < 1:
        raise CannotRun(f"--processes {options.processes}: expected 1 or more")
    start = time.perf_counter()
    reports, triton = _compiled(options.target, options.only, options.processes)
    seconds = time.perf_counter() - start
    if options.json:
        print_json(
            {"triton": triton, "seconds": round(seconds, 1), "reports": [report.as_json() for report in reports]}
        )
    else:
        _print_table(reports)
        wrong = sum(bool(report.problems) for report in reports)
        print(f"\n{len(reports)} compiled by triton {triton} in {seconds:.1f} s, {wrong} with a problem")
    return FOUND if any(report.problems for report in reports) else FINE


def _compiled(names: Sequence[str], words: Sequence[str], processes: int) -> tuple[list[Report], str]:
    """The reports, and the version of Triton that compiled."""
    from attnbook.kernels import compile as compiler
    from attnbook.kernels.available import triton_module
    from attnbook.kernels.targets import TARGETS

    known = {target.name: target for target in TARGETS}
    for name in names:
        if name not in known:
            raise CannotRun(f"there is no target {name!r}; there are: {', '.join(known)}")
    targets = [target for name, target in known.items() if not names or name in names]
    try:
        reports = compiler.report(targets, compiler.select(words), processes=processes)
    except BackendUnavailable as error:
        raise CannotRun(str(error)) from error
    if not reports:
        raise CannotRun(f"no kernel is called {' or '.join(words)}" if words else "there are no kernels")
    return reports, triton_module().__version__


def _print_table(reports: Sequence[Report]) -> None:
    rows = [HEAD, *(_row(report) for report in reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row, report in zip(rows, [None, *reports], strict=True):
        cells = (
            f"{cell:<{width}}" if column in (0, 1, 9, 10) else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
        for problem in report.problems if report else ():
            print(f"    ! {problem}")


def _row(report: Report) -> tuple[str, ...]:
    if report.error:
        return (report.name, report.target, *[""] * (len(HEAD) - 2))
    return (
        report.name,
        report.target,
        str(report.registers),
        str(report.stack_bytes),
        str(report.spill_bytes),
        f"{report.shared_bytes / 1024:.1f}",
        f"{report.shared_limit / 1024:.0f}",
        str(report.warps),
        f"{report.occupancy.share:.1%}",
        ", ".join(report.occupancy.limits),
        ", ".join(f"{name} {count}" for name, count in report.matrix.items() if count) or "-",
        str(report.tma),
    )
