"""Exercise of chapter 9b: the bytes of a KV cache."""

from __future__ import annotations

import math

import numpy as np

from attnbook.lab.seeing import seen, which
from attnbook.lab.step import Array, Case, Part, Reader, Recogniser, Seen, Step

NAMES = ("layers", "n_kv_heads", "head_dim", "tokens", "requests", "bytes_per_number")
FLAWS = (
    *("one_of_two", "one_layer", "one_head", "one_component", "one_token", "one_request", "one_byte"),
    *("in_bits", "bits_for_bytes", "pairs"),
)

UNITS = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def model(
    layers: int,
    n_kv_heads: int,
    head_dim: int,
    tokens: int,
    requests: int,
    bytes_per_number: float,
    *,
    flaws: frozenset[str] = frozenset(),
) -> Array:
    """2 · all of them, or with mistakes."""
    sizes = dict(zip(NAMES, (layers, n_kv_heads, head_dim, tokens, requests, bytes_per_number), strict=True))
    forgotten = {
        "one_layer": "layers",
        "one_head": "n_kv_heads",
        "one_component": "head_dim",
        "one_token": "tokens",
        "one_request": "requests",
        "one_byte": "bytes_per_number",
    }
    sizes |= {forgotten[flaw]: 1 for flaw in flaws & forgotten.keys()}
    total = math.prod(sizes.values()) * (1 if "one_of_two" in flaws else 2)
    if "pairs" in flaws:
        total *= sizes["tokens"]
    for flaw, factor in (("in_bits", 8), ("bits_for_bytes", 1 / 8)):
        total *= factor if flaw in flaws else 1
    return np.asarray(float(total))


def _other_unit(reader: Reader) -> Seen | None:
    """The right number of something larger than a byte."""
    for unit, size in UNITS.items():
        told = [model(*case.arguments) for case in reader.cases]  # type: ignore[arg-type]
        right = which(reader, [total / size for total in told])
        if right is not None and all(right):
            return seen(reader, 0, told[0], unit=unit)
    return None


def _cases() -> tuple[Case, ...]:
    """From a single number to Llama-3.1-8B with twenty requests; half a byte is a number of four bits."""
    sizes = (
        (1, 1, 1, 1, 1, 1),
        (1, 1, 1, 1, 1, 2),
        (1, 1, 1, 3, 1, 2),
        (2, 3, 5, 7, 11, 2),
        (32, 8, 128, 1, 1, 2),
        (32, 8, 128, 8192, 20, 2),
        (61, 7, 64, 4099, 13, 4),
        (61, 7, 64, 4099, 13, 0.5),
    )
    return tuple(Case(case, NAMES) for case in sizes)


STEP = Step(
    key="chapter-9b",
    stem="exercise09_cache",
    page="09b-groups",
    folder="exercises",
    parts=(
        Part(
            name="kv_cache_bytes",
            model=model,
            cases=_cases(),
            flaws=FLAWS,
            recognisers=(Recogniser("other_unit", _other_unit),),
        ),
    ),
)
