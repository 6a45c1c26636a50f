"""Kernels made to be good or bad in one respect, compiled in a process of its own that prints the reports as JSON.

    python -m tests.kernels_compile.purpose_made

The interpreter must not be asked for there, and pytest's own process may have been: hence a process.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import json
from collections.abc import Iterator

import triton
import triton.language as tl

from attnbook.kernels.compile import _compiled
from attnbook.kernels.targets import SM_80, SM_90, SM_100, TARGETS, Target
from attnbook.kernels.variant import Variant


@triton.jit
def product(a, b, c, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """c = a @ b for a (ROWS, n) and b (n, COLUMNS): the whole output is one tile, held in registers."""
    rows, columns, inner = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, STEP)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, n, STEP):
        of_a = tl.load(a + rows[:, None] * n + (start + inner)[None, :])
        of_b = tl.load(b + (start + inner)[:, None] * COLUMNS + columns[None, :])
        total = tl.dot(of_a, of_b, total)
    tl.store(c + rows[:, None] * COLUMNS + columns[None, :], total)


@triton.jit
def by_hand(a, b, c, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """The same, a row of b at a time: no matrix instruction can come of it."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, n):
        of_a = tl.load(a + rows * n + k).to(tl.float32)
        of_b = tl.load(b + k * COLUMNS + columns).to(tl.float32)
        total += of_a[:, None] * of_b[None, :]
    tl.store(c + rows[:, None] * COLUMNS + columns[None, :], total)


@triton.jit
def described(a, b, c, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """The same, its tiles copied through descriptors."""
    all_a = tl.make_tensor_descriptor(a, shape=[ROWS, n], strides=[n, 1], block_shape=[ROWS, STEP])
    all_b = tl.make_tensor_descriptor(b, shape=[n, COLUMNS], strides=[COLUMNS, 1], block_shape=[STEP, COLUMNS])
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, n, STEP):
        total = tl.dot(all_a.load([0, start]), all_b.load([start, 0]), total)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tl.store(c + rows[:, None] * COLUMNS + columns[None, :], total)


@triton.jit
def wrong(a, b, c, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """It does not compile."""
    tl.static_assert(ROWS == 0, "rows must be none at all")


SIGNATURE = {
    **{"a": "*bf16", "b": "*bf16", "c": "*fp32", "n": "i32"},
    **{"ROWS": "constexpr", "COLUMNS": "constexpr", "STEP": "constexpr"},
}
DIVISIBLE = ("a", "b", "c", "n")


def variant(name, kernel=product, sizes=(64, 64, 64), divisible=DIVISIBLE, **other):
    constants = dict(zip(("ROWS", "COLUMNS", "STEP"), sizes, strict=True))
    return Variant(name, "test", kernel, SIGNATURE, constants, divisible, **{"num_stages": 3, **other})


def cases() -> Iterator[tuple[Variant, tuple[Target, ...]]]:
    yield variant("good"), TARGETS
    yield variant("spills", sizes=(128, 256, 64)), TARGETS
    yield variant("shares too much", sizes=(64, 128, 256), num_stages=4), TARGETS
    yield variant("no matrix", by_hand), TARGETS
    yield variant("no matrix and none wanted", by_hand, multiplies=False), (SM_90,)
    yield variant("few rows", sizes=(16, 64, 64), rows=16), (SM_90, SM_100)
    yield variant("few rows, unsaid", sizes=(16, 64, 64)), (SM_90,)
    yield variant("described", described), (SM_80, SM_90)
    yield variant("nothing known", divisible=()), (SM_80,)
    yield variant("wrong", wrong), (SM_90,)


if __name__ == "__main__":
    found = [_compiled(target, of_case).as_json() for of_case, targets in cases() for target in targets]
    print(json.dumps({"reports": found}))
