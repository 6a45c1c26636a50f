"""Decoding against float64: every set of options × dtype × shape × way the keys lie, in memory or in pages."""

import contextlib
import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch

from attnbook.kernels import decode
from attnbook.kernels.decode import configs
from tests.kernels.device import DEVICE
from tests.kernels.forward_product import (
    DTYPES,
    OPTIONS,
    components_first,
    every_other,
    options_of,
    oracle,
    positions_first,
    sliced,
)
from tests.tolerance import as_float64, assert_refuses, assert_right, exact, garbage, plain, plain_lse, worst

# (b, n_heads, n_kv_heads, t_q, t_kv, d, d_v). Small splits have 32 keys, in tiles of 16; tiles have 16 rows.
SHAPES = {
    "one token": (2, 6, 2, 1, 71, 23, 23),
    "four ahead": (2, 4, 2, 5, 67, 40, 40),
    "two tiles of rows": (1, 14, 2, 3, 37, 16, 17),
    "more queries": (2, 3, 1, 7, 5, 19, 11),  # causal: the first two rows see nothing
    "whole splits": (1, 2, 1, 1, 64, 64, 64),
    "one key": (3, 4, 2, 1, 1, 5, 3),
    "192 and 128": (1, 2, 1, 1, 35, 192, 128),
    "256": (1, 3, 1, 2, 33, 256, 256),
}
LAYOUTS = {"positions first": positions_first, "components first": components_first, "sliced": sliced}
STORAGE = ("contiguous", *LAYOUTS, "expanded", "mask sliced", "pages of 1", "pages of 5", "pages of 16")
SPLITS = ("small splits", "splits as chosen")


class Case(NamedTuple):
    """One cell of the product."""

    options: str
    dtype: str
    shape: str
    storage: str
    splits: str

    def __str__(self) -> str:
        return " | ".join(self)


def cases() -> Iterator[Case]:
    """Every case there is."""
    return itertools.starmap(Case, itertools.product(OPTIONS, DTYPES, SHAPES, STORAGE, SPLITS))


def pairs(paged: bool, seed: int = 0) -> list[Case]:
    """Cases, in pages or not, in which every two values of two axes meet, but for options and shapes, which are many.

    Greedy, the same list for the same seed.
    """
    choose = random.Random(seed)
    every = [case for case in cases() if ("pages" in case.storage) == paged]
    missing = {pair for case in every for pair in met(case)}
    chosen: list[Case] = []
    while missing:
        best = max(choose.sample(every, 100), key=lambda case: len(missing & met(case)))
        missing -= met(best)
        chosen.append(best)
    return chosen


def met(case: Case) -> set[tuple[tuple[int, str], ...]]:
    """The pairs of values that a case has; options meet small and large shapes, and heads of their own each."""
    axes = list(enumerate(case))
    return {pair for pair in itertools.combinations(axes, 2) if {pair[0][0], pair[1][0]} not in ({0, 2}, {0, 3})} | {
        (axes[0], (9, "few" if case.shape in ("one key", "more queries") else str(SHAPES[case.shape][3] > 1)))
    }


def check(case: Case) -> str | None:
    """What is wrong with the kernels' result; None where nothing is."""
    try:
        run(case)
    except AssertionError as error:
        return str(error) or "an assertion without words"
    return None


def run(case: Case, *, controls: bool = False) -> None:
    """AssertionError unless out and lse are right; with `controls`, unless garbage would be refused too."""
    shape, dtype, seed = SHAPES[case.shape], DTYPES[case.dtype], torch.Generator().manual_seed(7)
    b, n_heads, _, t_q, t_kv, _, _ = shape
    q, k, v = inputs(shape, dtype)
    if case.storage == "expanded":
        k, v = (x[:1, :1].expand(x.shape) for x in (k, v))
    options = options_of(case.options, (b, n_heads, t_q, t_kv), seed, dtype)
    paged = case.storage.startswith("pages of ")
    lengths = [t_kv, *(min(19 * n, t_kv) for n in range(b - 1))] if paged else [t_kv] * b
    with small_splits() if case.splits == "small splits" else contextlib.nullcontext():
        if paged:
            out, lse = in_pages(int(case.storage.removeprefix("pages of ")), q, k, v, lengths, options)
        else:
            out, lse = in_memory(case.storage, q, k, v, options)
    assert out.dtype == dtype, f"out has dtype {out.dtype}"
    assert lse.dtype == torch.float32, f"lse has dtype {lse.dtype}"

    known = [oracle_of(n, length, options, (b, n_heads, t_q, t_kv), dtype) for n, length in enumerate(lengths)]
    each = [
        [x[n : n + 1] if x is q else x[n : n + 1, :, :length] for x in (q, k, v)] for n, length in enumerate(lengths)
    ]
    right = {name: np.concatenate([exact(*x, **o)[name] for x, o in zip(each, known, strict=True)])
             for name in ("out", "lse")}  # fmt: skip
    of_out, of_lse = (
        worst(right[name], *(torch.cat([way(*x, **o, backwards=backwards) for x, o in zip(each, known, strict=True)])
                             for backwards in (False, True)))
        for name, way in (("out", plain), ("lse", plain_lse))
    )  # fmt: skip
    assert_right(out, right["out"], of_out)
    finite = np.isfinite(right["lse"])
    assert (lse.numpy()[~finite] == -np.inf).all(), "lse of a row that sees nothing is not −inf"
    assert (as_float64(out)[~finite] == 0).all(), "out of a row that sees nothing is not 0"
    assert_right(lse[torch.from_numpy(finite)], right["lse"][finite], as_float64(of_lse)[finite], roundings=2)
    if controls:
        assert_refuses(garbage(*each[0], **known[0]), right["out"][:1], of_out[:1])


def inputs(shape, dtype, seed=3):
    """q, k, v of these sizes."""
    b, n_heads, n_kv_heads, t_q, t_kv, d, d_v = shape
    g = torch.Generator().manual_seed(seed)
    shapes = ((b, n_heads, t_q, d), (b, n_kv_heads, t_kv, d), (b, n_kv_heads, t_kv, d_v))
    return [torch.randn(one, generator=g).to(dtype) for one in shapes]


@contextlib.contextmanager
def small_splits(split=32):
    """A few dozen keys are several splits, each of several tiles, and a rest; a few rows are two tiles."""

    def config(*sizes, **paged):
        return configs.Config(split, 16, 16, num_warps=4, num_stages=2)

    with mock.patch.object(configs, "split_config", config):
        yield


def in_memory(storage, q, k, v, options):
    """Keys and values one after another, lying as asked for; the results on the CPU."""
    given = {"mask": None, "alibi_slopes": None, "sinks": None} | on_device(options)
    if storage == "mask sliced":
        given = {name: every_other(x) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    tensors = [LAYOUTS.get(storage, lambda x: x)(x.to(DEVICE)) for x in (q, k, v)]
    out, lse = decode.decode_forward(*tensors, **given)
    return out.cpu(), lse.cpu()


def in_pages(page_size, q, k, v, lengths, options, **more):
    """Keys and values in pages, in an order of their own; everything that is no key is NaN."""
    k_pages, v_pages, table = pages(page_size, k, v, lengths)
    options = {"is_causal": False} | on_device(options) | on_device(more)
    lengths = torch.tensor(lengths, device=DEVICE)
    out, lse = decode.paged_forward(q.to(DEVICE), k_pages, v_pages, table, lengths, **options)
    return out.cpu(), lse.cpu()


def pages(page_size, k, v, lengths, seed=5, spare=3):
    """Pages of k and v, cut out of larger memory full of NaN, and the table; unused entries point far outside."""
    b, n_kv_heads, t_kv, _ = k.shape
    width = -(-t_kv // page_size) + 1
    order = iter(torch.randperm(b * width + spare, generator=torch.Generator().manual_seed(seed)).tolist())
    table = torch.full((b, width), 2**30)
    shapes = ((b * width + spare, n_kv_heads, page_size, x.shape[3]) for x in (k, v))
    both = [sliced(torch.full(shape, torch.nan, dtype=k.dtype, device=DEVICE)) for shape in shapes]
    for n, length in enumerate(lengths):
        for i in range(-(-length // page_size)):
            table[n, i] = next(order)
            here = slice(i * page_size, min((i + 1) * page_size, length))
            for x, paged in zip((k, v), both, strict=True):
                paged[table[n, i], :, : here.stop - here.start] = x[n, :, here]
    return *both, table.to(DEVICE)


def on_device(options):
    """Options with their tensors where the kernels run."""
    return {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}


def oracle_of(n, length, options, shape, dtype):
    """The options of sequence n as the truth takes them, for its own number of keys."""
    _, n_heads, t_q, _ = shape
    own = dict(options)
    if own.get("mask") is not None:
        own["mask"] = own["mask"].expand(shape)[n : n + 1, ..., :length]
    if own.get("alibi_slopes") is not None and own["alibi_slopes"].ndim == 2:
        own["alibi_slopes"] = own["alibi_slopes"][n : n + 1]
    return oracle(own, (1, n_heads, t_q, length), dtype)
