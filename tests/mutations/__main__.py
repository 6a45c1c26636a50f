"""`python -m tests.mutations [WORD…]`: run all mutations, or those whose line holds one of the words."""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from attnbook.claims.entries import LedgerEntry
from tests.mutations.mutation import Mutation, Stale
from tests.mutations.package import PACKAGE
from tests.mutations.text import TEXT
from tests.mutations.workshop import ROOT, Crash, Workshop


def main() -> int:
    """0: every mutation was killed by its claim; 1: one was not; 2: the book itself is not green."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations whose line holds one of these words")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = [m for m in (*TEXT, *PACKAGE) if not options.words or any(w in f"{m} {m.killer}" for w in options.words)]
    if not chosen:
        print(f"no mutation holds any of: {' '.join(options.words)}")
        return 2
    if subprocess.run([sys.executable, "-m", "attnbook.bookkit", "execute", "book"], cwd=ROOT, check=False).returncode:
        print("the chapters do not execute: mend the book first")
        return 2
    return run(chosen, min(options.jobs, len(chosen)))


def run(mutations: Sequence[Mutation], jobs: int) -> int:
    """Try every mutation, `jobs` at a time, each worker in a copy of its own."""
    start = time.perf_counter()
    workshops: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
    opened = [Workshop() for _ in range(jobs)]
    try:
        with ThreadPoolExecutor(jobs) as pool:
            ledgers = list(pool.map(Workshop.build, opened))
            if ledgers[0].failures:
                print("the book is red before anything is broken:", *ledgers[0].failures, sep="\n")
                return 2
            claims: dict[str, list[LedgerEntry]] = {}
            for entry in ledgers[0].entries:
                claims.setdefault(entry.id, []).append(entry)
            for workshop in opened:
                workshops.put(workshop)
            survivors = sum(pool.map(lambda mutation: _report(mutation, workshops, claims), mutations))
    finally:
        for workshop in opened:
            workshop.__exit__(None, None, None)
    print(f"{len(mutations) - survivors} of {len(mutations)} killed in {time.perf_counter() - start:.0f} s")
    return 1 if survivors else 0


def _report(mutation: Mutation, workshops: queue.SimpleQueue[Workshop], claims: dict[str, list[LedgerEntry]]) -> bool:
    """Try one mutation, print its line; True where it was not killed."""
    workshop = workshops.get()
    try:
        trouble = workshop.attempt(mutation, claims)
    except (Crash, Stale) as error:
        trouble = f"{type(error).__name__.lower()}: {error}"
    finally:
        workshops.put(workshop)
    print(f"{'SURVIVED' if trouble else 'killed  '}  {mutation}  [{mutation.killer}]", flush=True)
    if trouble:
        print("    " + trouble.replace("\n", "\n    "), flush=True)
    return bool(trouble)


if __name__ == "__main__":
    sys.exit(main())
