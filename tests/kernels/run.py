"""`python -m tests.kernels`: the full product of every operation's options, dtypes and shapes, in the interpreter.

Each `tests/kernels/<operation>_product.py` has `cases()`, which yields cases, and `check(case)`, which says what is
wrong with one or returns None. With `--gpu` the kernels run compiled, on the GPU of this machine.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

SHARE = 8
"""Cases that a process takes at a time."""


def main(arguments: list[str] | None = None) -> int:
    """0 where every case is right, 1 where one is not or there is none."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels", description=__doc__)
    parser.add_argument("--only", default="", help="only cases whose name has this in it, as 'forward: window'")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="only each N-th case of those; a prime varies all"
    )
    cut = "only these of the cases that are left, from 0 on, so that a long run can be cut"
    parser.add_argument("--slice", type=slice_of, default=slice(None), metavar="FROM:TO", help=cut)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--gpu", action="store_true", help="compiled, on the GPU: one process")
    parser.add_argument("--list", action="store_true", help="say which cases there are, and run none")
    chosen = parser.parse_args(arguments)
    prepare(gpu=chosen.gpu)
    named = [(operation, i, name) for operation, i, name in every_case() if chosen.only in name]
    named = named[:: chosen.every][chosen.slice]
    if chosen.list:
        print(*(name for *_, name in named), sep="\n")
        return 0 if named else 1
    start, wrong, done = time.monotonic(), 0, 0
    with ExitStack() as stack:
        run = map
        if chosen.jobs > 1 and not chosen.gpu:
            pool = ProcessPoolExecutor(chosen.jobs, get_context("spawn"), initializer=prepare)
            run = stack.enter_context(pool).map
        shares = list(in_shares(named))
        for share, found in zip(shares, run(failures, shares), strict=True):
            done += len(share)
            wrong += len(found)
            for name, what in found:
                print(f"wrong: {name}: {what}", flush=True)
            print(f"{done} of {len(named)}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    print(f"{len(named) - wrong} of {len(named)} right in {time.monotonic() - start:.0f} s")
    return 1 if wrong or not named else 0


def slice_of(text: str) -> slice:
    """The slice that "100:200", "100:" or ":200" means; ValueError for anything else, which argparse reports."""
    first, last = (int(number) if number else None for number in text.split(":"))
    return slice(first, last)


def prepare(*, gpu: bool = False) -> None:
    """Before torch and triton are imported: the interpreter, unless compiled kernels are asked for; one thread each."""
    os.environ["OMP_NUM_THREADS"] = "1"
    # NumPy, in which the interpreter calculates, warns of lanes that nobody reads.
    warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning)
    if not gpu:
        os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}


def operations() -> list[str]:
    """The operations that have a product, by name."""
    return sorted(path.stem.removesuffix("_product") for path in Path(__file__).parent.glob("*_product.py"))


def every_case() -> Iterator[tuple[str, int, str]]:
    """Each operation, the number of the case there, and the name of the case."""
    for operation in operations():
        for i, case in enumerate(product(operation).cases()):
            yield operation, i, f"{operation}: {case}"


def product(operation: str):
    """The module that knows an operation's cases."""
    return importlib.import_module(f"tests.kernels.{operation}_product")


def in_shares(named: list[tuple[str, int, str]]) -> Iterator[list[tuple[str, int, str]]]:
    """The cases of one operation after another, a few at a time."""
    rest = iter(named)
    while share := list(islice(rest, SHARE)):
        yield share


def failures(share: list[tuple[str, int, str]]) -> list[tuple[str, str]]:
    """What is wrong with which of these cases; an error is what is wrong, too, and the next case goes on."""
    found = []
    for operation, i, name in share:
        module = product(operation)
        try:
            what = module.check(listed(operation)[i])
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
        if what is not None:
            found.append((name, what))
    return found


CASES: dict[str, list] = {}


def listed(operation: str) -> list:
    """An operation's cases, enumerated once a process: a case need not be of a kind that can be sent to another."""
    if operation not in CASES:
        CASES[operation] = list(product(operation).cases())
    return CASES[operation]
