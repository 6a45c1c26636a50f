"""The axes of the matrix, and the pairs of it: a short list in which any two values of two axes meet."""

import itertools
import random
from typing import NamedTuple

import torch

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# (b, t_q, t_kv, head_dim, d_v). Primes and odd numbers; more queries than keys; one query; nothing at all; lengths just
# above a tile of 64 and of 128; another d_v.
SHAPES = {
    "small": (2, 7, 7, 5, 5),
    "more keys": (2, 5, 17, 7, 3),
    "more queries": (3, 17, 5, 3, 7),
    "one query": (2, 1, 131, 59, 59),
    "97": (2, 97, 97, 40, 40),
    "113 by 203": (1, 113, 203, 80, 80),
    "203 by 113": (1, 203, 113, 111, 111),
    "257": (1, 257, 257, 16, 24),
    "192 and 128": (1, 67, 71, 192, 128),
    "no batch": (0, 7, 5, 3, 3),
    "no query": (2, 0, 5, 3, 3),
    "no key": (2, 5, 0, 3, 3),
}
HEADS = {"of its own": (3, 3), "grouped": (6, 2), "one for all": (5, 1)}
LAYOUTS = ("contiguous", "positions first", "sliced", "expanded", "offset")
OPTIONS = (
    "none",
    "causal",
    "window",
    "boolean mask",
    "empty rows",
    "empty rows, causal",
    "float mask",
    "float mask, causal",
    "softcap",
    "softcap, causal",
    "alibi",
    "alibi of each sequence, causal",
    "sinks",
    "sinks, empty rows",
    "sinks, window",
    "scale",
    "everything, boolean mask",
    "everything, float mask",
)
IMPLEMENTATIONS = ("reference in NumPy", "reference", "tiled", "door: auto", "door: sdpa", "operator")


class Case(NamedTuple):
    """One cell of the matrix."""

    implementation: str
    options: str
    dtype: str
    shape: str
    heads: str
    layout: str

    def __str__(self) -> str:
        return " | ".join(self)


AXES = (IMPLEMENTATIONS, OPTIONS, tuple(DTYPES), tuple(SHAPES), tuple(HEADS), LAYOUTS)


def product() -> list[Case]:
    """Every case there is."""
    return [case for case in itertools.starmap(Case, itertools.product(*AXES)) if exists(case)]


def pairs(seed: int = 0) -> list[Case]:
    """Cases in which every two values that can meet do meet: greedy, the same list for the same seed."""
    choose = random.Random(seed)
    missing = {pair for case in product() for pair in met(case)}
    chosen: list[Case] = []
    while missing:
        first = choose.choice(sorted(missing))
        tried = (completed(first, choose) for _ in range(60))
        best = max((case for case in tried if exists(case)), key=lambda case: len(missing & met(case)))
        missing -= met(best)
        chosen.append(best)
    return chosen


def completed(pair: tuple[tuple[int, str], tuple[int, str]], choose: random.Random) -> Case:
    """A case that holds the pair, all else by chance."""
    values = [choose.choice(axis) for axis in AXES]
    for axis, value in pair:
        values[axis] = value
    return Case(*values)


def met(case: Case) -> set[tuple[tuple[int, str], tuple[int, str]]]:
    """The pairs of values that meet in a case."""
    return set(itertools.combinations(enumerate(case), 2))


def exists(case: Case) -> bool:
    """NumPy has no bfloat16, and torch's own function no softcap and no sinks."""
    if case.implementation == "reference in NumPy":
        return case.dtype != "bfloat16"
    if case.implementation == "door: sdpa":
        return not any(word in case.options for word in ("softcap", "sinks", "everything"))
    return True
