"""The command: runs the cases one after another within its time, prints a line for each, and says how it ended."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from attnbook.bench.budget import Budget, TimeIsUp, stopped_after
from attnbook.bench.case import Case, Setting, Verdict, judge
from attnbook.bench.clock import WallClock
from attnbook.bench.record import CannotRecord, Recorder, default_path
from attnbook.bench.report import COULD_NOT_RUN, FINE, Table, as_data, machine, place, status, summary

MINUTES = {"cuda": 8.0, "cpu": 60.0}
"""How long a run may take on either kind of device."""
RESERVE = {"cuda": 8.0, "cpu": 0.0}
"""Seconds of it that cases may not take: writing the record, and ending what compilers have started."""
SECONDS = {"cuda": 1.5, "cpu": 8.0}
"""How long the rounds of one comparison take."""


def main(arguments: Sequence[str] | None = None, prog: str = "python -m attnbook.bench") -> int:
    """Run the suite -> 0 all met, 1 a target missed or results wrong, 2 something could not run (and no 1)."""
    budget_clock = WallClock()
    start = budget_clock.now()  # before torch is loaded: the time that a command takes is the user's
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(prog).parse_args(words)
    kind = "cpu" if options.device == "cpu" else "cuda"
    try:
        import torch

        cases = _suite(kind)
    except ModuleNotFoundError as error:
        if (error.name or "attnbook").partition(".")[0] == "attnbook":
            raise
        return _cannot(prog, f"this needs {error.name}, which is not installed")
    names = ", ".join(case.name for case in cases)
    chosen = _chosen(cases, options.only)
    if not chosen:
        return _cannot(prog, f"no case is called {' or '.join(options.only)}; there are {names}")
    if options.list:
        print(*_listed(chosen, kind), sep="\n")
        return FINE
    wrong = _taken(options.device)
    if wrong:
        return _cannot(prog, wrong)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    seconds = 0.2 if options.quick else SECONDS[kind]
    setting = Setting(options.device, options.quick, seconds, machine(options.device))
    minutes = MINUTES[kind] if options.minutes is None else options.minutes
    try:
        recorder = _recorder(options, setting, words, chosen)
    except CannotRecord as error:
        return _cannot(prog, str(error))
    budget = Budget(60 * minutes - RESERVE[kind], budget_clock, start)
    return _run(chosen, setting, budget, recorder, as_json=options.json)


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Speed against what a user would pick instead, measured in turns, in one run. On a GPU every "
        "kernel is checked against float64 before. "
        "Exit status: 0 all met, 1 a target was missed or results are wrong, 2 something could not run.",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="a case, or the beginning of several names")
    parser.add_argument("--list", action="store_true", help="name the cases and stop; for a GPU with the time planned")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run? Nothing is judged")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (%(default)s)")
    parser.add_argument("--threads", type=int, help="torch's threads on the CPU; its own choice where not given")
    parser.add_argument("--minutes", type=float, help="what the run may take (8 on a GPU); what doesn't fit is not run")
    parser.add_argument(
        "--record", nargs="?", const="", metavar="FILE", help="write a record, to book/records/ where no file is given"
    )
    return parser


def _suite(kind: str) -> tuple[Case, ...]:
    if kind == "cpu":
        from attnbook.bench.suite import SUITE
        from attnbook.kernels.available import interpreting

        # Asked of the environment first: to ask Triton takes a second.
        if os.environ.get("TRITON_INTERPRET") and interpreting():
            from attnbook.bench.gpu_suite import CHECKS

            return (*CHECKS, *SUITE)
        return tuple(SUITE)
    from attnbook.bench.gpu_suite import GPU_SUITE

    return GPU_SUITE


def _chosen(cases: Sequence[Case], only: Sequence[str] | None) -> list[Case]:
    """The cases that are named, and those that they need before them."""
    wanted = {case.name for case in cases if not only or case.name.startswith(tuple(only))}
    for case in reversed(cases):
        if case.name in wanted:
            wanted |= set(case.needs)
    return [case for case in cases if case.name in wanted]


def _listed(cases: Sequence[Case], kind: str) -> list[str]:
    width = max(len(case.name) for case in cases) + 1
    if kind == "cpu":
        return [f"{case.name:<{width}} {case.what}" for case in cases]
    lines = [f"{case.name:<{width}} {case.planned:>4.0f} s  {case.what}" for case in cases]
    return [*lines, f"{'in all':<{width}} {sum(case.planned for case in cases):>4.0f} s at most"]


def _taken(device: str) -> str:
    """Make this the device of the process -> why nothing can be measured on it; empty where it can."""
    import torch

    if device == "cpu":
        return ""
    if not torch.cuda.is_available():
        return f"device {device!r} is not here: torch {torch.__version__} finds no CUDA device"
    try:
        index = torch.device(device).index
        if index is not None:  # without one it is the current device already, on which Triton launches
            torch.cuda.set_device(index)
    except (RuntimeError, AssertionError, ValueError) as error:
        return f"device {device!r} is not here: {str(error).splitlines()[0]}"
    if os.environ.get("TRITON_INTERPRET"):
        return "TRITON_INTERPRET is set: kernels would be interpreted on the CPU, and no GPU measured"
    # What float32 is compared with must be float32, though some images set another default.
    torch.set_float32_matmul_precision("highest")
    return ""


def _recorder(
    options: argparse.Namespace, setting: Setting, words: Sequence[str], cases: Sequence[Case]
) -> Recorder | None:
    if options.record is None:
        return None
    if options.quick:
        raise CannotRecord("--quick measures small sizes, which no record is made of")
    path = Path(options.record) if options.record else default_path(setting)
    # As typed, without the path: where a checkout lies is nobody's business.
    said = [word for word in words if not options.record or word != options.record]
    return Recorder(path, setting, shlex.join(["attnbook", "bench", *said]), cases)


def _cannot(prog: str, why: str) -> int:
    print(f"{prog}: {why}", file=sys.stderr)
    return COULD_NOT_RUN


def _run(cases: Sequence[Case], setting: Setting, budget: Budget, recorder: Recorder | None, *, as_json: bool) -> int:
    where, table = place(setting), Table(cases)
    verdicts: list[Verdict] = []

    def ended(verdict: Verdict) -> None:
        verdicts.append(verdict)
        if not as_json:
            print(table.line(verdict), flush=True)
        if recorder is not None:
            recorder.update(verdicts)

    if not as_json:
        print(", ".join(f"{key} {value}" for key, value in where.items()), flush=True)
        print(table.head(), flush=True)
    run_all(cases, setting, budget, ended)
    seconds = budget.seconds - budget.left()
    written = recorder.finish(verdicts) if recorder is not None else ""
    if as_json:
        data = where | {"seconds": seconds, "cases": [as_data(verdict) for verdict in verdicts], "record": written}
        print(json.dumps(data, indent=2, ensure_ascii=True))
    else:
        print(summary(verdicts, seconds))
        if written:
            print(written)
    return status(verdicts)


def run_all(cases: Sequence[Case], setting: Setting, budget: Budget, ended: Callable[[Verdict], None]) -> None:
    """Every case within the budget, in order; `ended` is told each verdict as it comes."""
    done: dict[str, Verdict] = {}
    for case in cases:
        done[case.name] = _one(case, done, setting, budget)
        ended(done[case.name])
        _free(setting)


def _one(case: Case, done: dict[str, Verdict], setting: Setting, budget: Budget) -> Verdict:
    for name in case.needs:
        if name not in done or done[name].finding is None:
            how = done[name].word if name in done else "left out"
            return Verdict(case, "not run", why=f"{name} before it: {how}")
    over = budget.refuses(case.planned)
    if over:
        return Verdict(case, "not run", why=over)
    try:
        with stopped_after(budget.left()):
            return judge(case, setting)
    except TimeIsUp:
        return Verdict(case, "not run", why="the run's time was up before it had ended")
    except Exception as error:  # a bug, or memory that ran out: the other cases go on without it
        traceback.print_exc()
        first = (str(error).strip().splitlines() or [""])[0]
        return Verdict(case, "FAILED", why=f"{type(error).__name__}: {first}"[:200])


def _free(setting: Setting) -> None:
    """Give memory back that the next case may need."""
    if setting.device != "cpu":
        import gc

        import torch

        gc.collect()
        with contextlib.suppress(RuntimeError):  # after an illegal access every call fails; the record is written still
            torch.cuda.empty_cache()
