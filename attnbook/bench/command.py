"""`python -m attnbook.bench`: runs the cases one after another, prints a line for each, and says how it ended."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from attnbook.bench.case import Case, Setting, Verdict, judge, shown

FINE, FOUND, COULD_NOT_RUN = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite -> 0 all met, 1 a target missed or sides that disagree, 2 something could not run (and no 1)."""
    parser = argparse.ArgumentParser(
        prog="python -m attnbook.bench",
        description="Ratios of one run, measured in turns, against what a user would pick instead. "
        "Exit status: 0 all met, 1 a target was missed or results differ, 2 something could not run.",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="a case, or the beginning of several names")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run? Nothing is judged")
    parser.add_argument("--device", default="cpu", help="where tensors live (%(default)s)")
    parser.add_argument("--threads", type=int, help="torch's threads; its own choice where not given")
    options = parser.parse_args(arguments)
    try:
        import torch

        from attnbook.bench.suite import SUITE
    except ModuleNotFoundError as error:
        if (error.name or "attnbook").partition(".")[0] == "attnbook":
            raise
        print(f"bench: this needs {error.name}, which is not installed", file=sys.stderr)
        return COULD_NOT_RUN
    if options.list:
        print(*(f"{case.name:<16} {case.what}" for case in SUITE), sep="\n")
        return FINE
    if options.device != "cpu" and not torch.cuda.is_available():
        print(f"bench: device {options.device!r} is not here", file=sys.stderr)
        return COULD_NOT_RUN
    cases = [case for case in SUITE if not options.only or case.name.startswith(tuple(options.only))]
    if not cases:
        names = ", ".join(case.name for case in SUITE)
        print(f"bench: no case is called {' or '.join(options.only)}; there are {names}", file=sys.stderr)
        return COULD_NOT_RUN
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    setting = Setting(options.device, options.quick, 0.2 if options.quick else 8.0)
    return _run(cases, setting, as_json=options.json)


def _run(cases: Sequence[Case], setting: Setting, *, as_json: bool) -> int:
    where = place(setting)
    if not as_json:
        print(", ".join(f"{key} {value}" for key, value in where.items()), flush=True)
        print(f"{'case':<16} {'figure':>9} {'asked':>9}  verdict  ran     medians", flush=True)
    verdicts, start = [], time.perf_counter()
    for case in cases:
        verdicts.append(judge(case, setting))
        if not as_json:
            print(line(verdicts[-1]), flush=True)
    seconds = time.perf_counter() - start
    if as_json:
        cases_made = [record(verdict) for verdict in verdicts]
        print(json.dumps(where | {"seconds": seconds, "cases": cases_made}, indent=2, ensure_ascii=True))
    else:
        print(summary(verdicts, seconds))
    return status(verdicts)


def place(setting: Setting) -> dict[str, Any]:
    """Device, threads and versions: what figures hang on."""
    import platform

    import torch

    return {
        "device": setting.device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu capability": torch.backends.cpu.get_cpu_capability(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
    }


def line(verdict: Verdict) -> str:
    """One row of the table."""
    case, found = verdict.case, verdict.finding
    if found is None:
        return f"{case.name:<16} {'':>9} {case.target!s:>9}  {verdict.word:<7}  {verdict.why}"
    sides = ", ".join(f"{name} {_size(value, found.unit)}" for name, value in found.sides.items())
    note = f" ({found.note})" if found.note else ""
    figure = shown(found.figure, case.target.unit)
    return f"{case.name:<16} {figure:>9} {case.target!s:>9}  {verdict.word:<7}  {found.ran:<6}  {sides}{note}"


def _size(value: float, unit: str) -> str:
    if unit == "MiB":
        return f"{value:.1f} MiB"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def record(verdict: Verdict) -> dict[str, Any]:
    """One case for JSON."""
    case, found = verdict.case, verdict.finding
    made: dict[str, Any] = {
        "name": case.name, "what": case.what, "verdict": verdict.word, "unit": case.target.unit,
        "target": case.target.value, "at_least": case.target.at_least,
    }  # fmt: skip
    if found is None:
        return made | {"why": verdict.why}
    return made | {
        "figure": found.figure,
        "sides": dict(found.sides),
        "sides_unit": found.unit,
        "note": found.note,
        "ran": found.ran,
    }


def summary(verdicts: Sequence[Verdict], seconds: float) -> str:
    """How many ended how."""
    words = [verdict.word for verdict in verdicts]
    counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return f"{len(words)} cases in {seconds:.0f} s: {counted}"


def status(verdicts: Sequence[Verdict]) -> int:
    """0 where all is met, 1 where something was missed or wrong, 2 where something did not run."""
    words = {verdict.word for verdict in verdicts}
    if words & {"MISSED", "WRONG"}:
        return FOUND
    return COULD_NOT_RUN if "not run" in words else FINE
