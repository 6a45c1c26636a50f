"""`python -m tests.matrix`: the full product, over the processors there are; `--pairs` only the default run's pairs."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

from tests.matrix.axes import AXES, pairs, product
from tests.matrix.work import failures, one_thread


def main(arguments: list[str] | None = None) -> int:
    """0 where every case is right, 1 where one is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--pairs", action="store_true", help="only the pairs of the default run")
    parser.add_argument("--only", default="", help="only cases whose name has this in it, as 'tiled | window'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    cases = [case for case in (pairs() if chosen.pairs else product()) if chosen.only in str(case)]
    # Cases with the same inputs go to the same process, one after another: the truth about them is worked out once.
    cases.sort(key=lambda case: case[1:])
    groups = [list(group) for _, group in itertools.groupby(cases, key=lambda case: case[1:3])]
    start, wrong, done = time.monotonic(), 0, 0
    print(f"{len(cases)} cases: {' × '.join(str(len(axis)) for axis in AXES)} less those that do not exist", flush=True)
    with ExitStack() as stack:
        run = map
        if chosen.jobs > 1:
            pool = ProcessPoolExecutor(chosen.jobs, get_context("spawn"), initializer=one_thread)
            run = stack.enter_context(pool).map
        for group, found in zip(groups, run(failures, groups), strict=True):
            done += len(group)
            wrong += len(found)
            for case, what in found:
                print(f"wrong: {case}: {what}", flush=True)
            print(f"{done} of {len(cases)}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    print(f"{len(cases) - wrong} of {len(cases)} right in {time.monotonic() - start:.0f} s")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
