"""`python -m tests.seeds [WORD…]`: random experiments at other seeds. Is what the book says of them right there, too?

A random experiment is one with a setting `seed`. WORDs choose by experiment, page or id. Exit status 0: every text is
right at every seed; 1: some text is not; 2: there was nothing to run.

A text that is right while the build would call it fragile is reported and is no failure: fragile is the build's guess,
from one seed, at what the others would give, and here they were asked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

from attnbook.claims import ledger as ledgers
from attnbook.claims.entries import Ledger
from tests.mutations.workshop import ROOT, Workshop
from tests.seeds.rerun import Held, Job, Run, jobs, timed


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.seeds", description=__doc__)
    parser.add_argument("words", nargs="*", help="only experiments whose name, page or ids hold one of these words")
    parser.add_argument("--seeds", type=int, default=20, help="how many other seeds (20)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side (the cores)")
    parser.add_argument("--ledger", type=Path, help="read this ledger.json of a build instead of building")
    parser.add_argument("--quiet", action="store_true", help="print only what fails or is fragile")
    options = parser.parse_args(arguments)
    ledger = ledgers.load(options.ledger) if options.ledger else built()
    if ledger is None:
        return 2
    chosen = jobs(ledger.entries, options.words)
    if not chosen:
        print("no page quotes an experiment with a setting seed" + (f" and {options.words}" if options.words else ""))
        return 2
    return run(chosen, seeds=options.seeds, processes=options.jobs, quiet=options.quiet)


def built() -> Ledger | None:
    """What the book says now: its chapters executed where they must be, its pages read in a copy."""
    command = (sys.executable, "-m", "attnbook.bookkit", "execute", "book")
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        print("the chapters do not execute: mend the book first, or give --ledger")
        return None
    with Workshop() as copy:
        ledger = copy.build()
    if ledger.failures:
        print(f"the book is red at its own seeds already: {len(ledger.failures)} failures")
    return ledger


def run(chosen: Sequence[Job], *, seeds: int, processes: int, quiet: bool = False) -> int:
    """Run them all; each is reported as soon as its last seed is done."""
    start = time.perf_counter()
    failed = judged = 0
    # Not forked: a child that inherits torch's threads without running them waits for ever.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        waiting: dict[Future[Run], tuple[int, int]] = {}
        for number, job in enumerate(chosen):
            waiting |= {pool.submit(timed, job.experiment, job.settings, s): (number, s) for s in job.seeds(seeds)}
        runs: dict[int, dict[int, Run]] = {number: {} for number in range(len(chosen))}
        for done in as_completed(waiting):
            number, seed = waiting[done]
            runs[number][seed] = done.result()
            if len(runs[number]) == seeds:
                broken = report(chosen[number], dict(sorted(runs.pop(number).items())), quiet=quiet)
                failed, judged = failed + broken, judged + len(chosen[number].entries)
    print(f"{judged} texts of {len(chosen)} experiments at {seeds} seeds: {failed} fail, "
          f"{time.perf_counter() - start:.0f} s")  # fmt: skip
    return 1 if failed else 0


def report(job: Job, runs: dict[int, Run], *, quiet: bool = False) -> int:
    """Print what an experiment's seeds gave -> how many of the book's texts fail."""
    held = [Held(entry) for entry in job.entries]
    for seed, one_run in runs.items():
        for one in held:
            one.add(seed, one_run.made)
    failing = [one for one in held if not one.fine]
    seconds = sum(one_run.seconds for one_run in runs.values()) / len(runs)
    verdict = f"{len(failing)} of {len(held)} FAIL" if failing else f"all {len(held)} hold"
    print(f"{job.name}: {verdict} at {len(runs)} seeds, {seconds:.1f} s each", flush=True)
    for seed, one_run in runs.items():
        if one_run.raised:
            print(f"  seed {seed} raised {one_run.raised}")
    for one in sorted(held, key=lambda one: one.fine):
        if not one.fine or one.fragile or not quiet:
            print(f"  {one}", flush=True)
    return len(failing)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # a run has neighbours, as a chapter in the build has
    sys.exit(main())
