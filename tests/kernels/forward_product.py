"""The forward kernel against float64: every set of options × dtype × shape × way the memory lies."""

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from attnbook.kernels import flash
from tests.kernels.device import DEVICE
from tests.tolerance import as_float64, assert_refuses, assert_right, exact, garbage, plain, plain_lse, worst

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# (b, n_heads, n_kv_heads, t_q, t_kv, d, d_v). The interpreter's tiles have 32 queries and 32 keys.
SHAPES = {
    "square": (1, 4, 2, 67, 67, 23, 23),
    "more keys": (2, 2, 2, 33, 71, 40, 40),
    "more queries": (1, 2, 1, 97, 35, 16, 17),  # causal: the first 62 rows see nothing
    "one query": (2, 4, 2, 1, 71, 59, 59),
    "192 and 128": (1, 2, 2, 33, 45, 192, 128),
    "256": (1, 3, 1, 35, 37, 256, 256),
    "few keys": (2, 2, 1, 37, 5, 3, 7),
    "whole tiles": (1, 2, 1, 64, 96, 64, 64),
}
OPTIONS = (
    "bare", "causal", "window", "window of one", "long window", "softcap", "slopes", "slopes by sequence", "sinks",
    "scale", "booleans", "padding", "hidden rows", "first tile hidden", "floats", "lowest floats", "everything",
)  # fmt: skip
LAYOUTS = ("contiguous", "positions first", "components first", "sliced", "expanded", "mask sliced")


class Case(NamedTuple):
    """One cell of the product."""

    options: str
    dtype: str
    shape: str
    layout: str

    def __str__(self) -> str:
        return " | ".join(self)


AXES = (OPTIONS, tuple(DTYPES), tuple(SHAPES), LAYOUTS)


def cases() -> Iterator[Case]:
    """Every case there is."""
    return itertools.starmap(Case, itertools.product(*AXES))


def pairs(seed: int = 0) -> list[Case]:
    """Cases in which every two values of two axes meet: greedy, the same list for the same seed."""
    choose = random.Random(seed)
    every = list(cases())
    missing = {pair for case in every for pair in met(case)}
    chosen: list[Case] = []
    while missing:
        best = max(choose.sample(every, 100), key=lambda case: len(missing & met(case)))
        missing -= met(best)
        chosen.append(best)
    return chosen


def met(case: Case) -> set[tuple[tuple[int, str], ...]]:
    """The pairs of values that a case has."""
    return set(itertools.combinations(enumerate(case), 2))


def check(case: Case) -> str | None:
    """What is wrong with the kernel's result; None where nothing is."""
    try:
        run(case)
    except AssertionError as error:
        return str(error) or "an assertion without words"
    return None


def run(case: Case, *, controls: bool = False) -> None:
    """AssertionError unless out and lse are right; with `controls`, unless garbage would be refused too."""
    b, n_heads, n_kv_heads, t_q, t_kv, d, d_v = SHAPES[case.shape]
    seed, dtype = torch.Generator().manual_seed(7), DTYPES[case.dtype]
    q, k, v = (
        torch.randn(shape, generator=seed).to(dtype)
        for shape in ((b, n_heads, t_q, d), (b, n_kv_heads, t_kv, d), (b, n_kv_heads, t_kv, d_v))
    )
    if case.layout == "expanded":
        k, v = (x[:1, :1].expand(x.shape) for x in (k, v))
    options = options_of(case.options, (b, n_heads, t_q, t_kv), seed, dtype)
    known = oracle(options, (b, n_heads, t_q, t_kv), dtype)
    right = exact(q, k, v, **known)
    out, lse = call(case.layout, q, k, v, options)
    assert out.dtype == dtype, f"out has dtype {out.dtype}"
    assert lse.dtype == torch.float32, f"lse has dtype {lse.dtype}"
    both = ({"backwards": False}, {"backwards": True})
    baseline = worst(right["out"], *(plain(q, k, v, **known, **way) for way in both))
    assert_right(out, right["out"], baseline)
    finite = np.isfinite(right["lse"])
    baseline_lse = as_float64(worst(right["lse"], *(plain_lse(q, k, v, **known, **way) for way in both)))
    assert (lse.double().numpy()[~finite] == -np.inf).all(), "lse of a row that sees nothing is not −inf"
    assert (out.double().numpy()[~finite] == 0).all(), "out of a row that sees nothing is not 0"
    assert_right(lse[torch.from_numpy(finite)], right["lse"][finite], baseline_lse[finite], roundings=2)
    if controls:
        wrong = garbage(q, k, v, **known)
        assert_refuses(wrong, right["out"], torch.as_tensor(as_float64(baseline)).to(dtype))


def call(layout, q, k, v, options):
    """The kernel on tensors that lie as asked for, its results on the CPU."""
    given = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    tensors = [x.to(DEVICE) for x in (q, k, v)]
    if layout == "mask sliced":
        given = {name: every_other(x) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    elif layout not in ("contiguous", "expanded"):
        tensors = [VIEWS[layout](x) for x in tensors]
    out, lse = flash.attention_forward(*tensors, **given)
    return out.cpu(), lse.cpu()


def positions_first(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def components_first(x):
    return x.transpose(2, 3).contiguous().transpose(2, 3)


def sliced(x):
    """Cut out of a larger tensor of NaN."""
    room = x.new_full([size + 3 for size in x.shape], torch.nan)
    part = room[tuple(slice(1, -2) for _ in x.shape)]
    part.copy_(x)
    return part


VIEWS = {"positions first": positions_first, "components first": components_first, "sliced": sliced}


def every_other(x):
    """With a stride of 2 along the last axis; in between lies NaN, or True."""
    room = x.new_full((*x.shape, 2), torch.nan if x.is_floating_point() else True)
    room[..., 0] = x
    return room[..., 0]


def options_of(name, shape, seed, dtype):
    """The options of a call by their name, as the kernel takes them."""
    b, n_heads, t_q, t_kv = shape

    def normal(*size):
        return torch.randn(size, generator=seed)

    def some(*size, share=0.4):
        return torch.rand(size, generator=seed) < share

    slopes = torch.rand(b, n_heads, generator=seed) / 4 + 0.05
    hidden = some(b, 1, t_q, t_kv)
    floats = normal(n_heads, t_q, t_kv).masked_fill(some(n_heads, t_q, t_kv, share=0.3), -torch.inf)
    if name == "hidden rows":
        hidden[:, :, ::3] = False
    if name == "first tile hidden":
        hidden = torch.arange(t_kv).expand(t_q, t_kv) >= min(32, t_kv - 1)
    return {
        "bare": {},
        "causal": {"is_causal": True},
        "window": {"is_causal": True, "window": 13},
        "window of one": {"is_causal": True, "window": 1},
        "long window": {"is_causal": True, "window": 33},
        "softcap": {"softcap": 1.5},
        "slopes": {"alibi_slopes": slopes[0], "is_causal": True},
        "slopes by sequence": {"alibi_slopes": slopes},
        "sinks": {"sinks": normal(n_heads) + 1, "is_causal": True},
        "scale": {"scale": -0.4},
        "booleans": {"mask": some(b, n_heads, t_q, t_kv)},
        "padding": {"mask": torch.arange(t_kv) < max(t_kv * 2 // 3, 1), "is_causal": True},
        "hidden rows": {"mask": hidden},
        "first tile hidden": {"mask": hidden},
        "floats": {"mask": floats},
        "lowest floats": {"mask": floats.to(dtype).clamp(min=torch.finfo(dtype).min), "is_causal": True},
        "everything": {
            "mask": floats.to(torch.float64), "is_causal": True, "window": 19, "softcap": 2.0, "alibi_slopes": slopes,
            "sinks": normal(n_heads), "scale": 0.3,
        },
    }[name]  # fmt: skip


def oracle(options, shape, dtype):
    """The same options as the truth takes them: a mask is what it allows and what it adds."""
    known = {name: x for name, x in options.items() if name != "mask"}
    mask = options.get("mask")
    if mask is not None:
        lowest = max(torch.finfo(x).min for x in (dtype, mask.dtype) if x.is_floating_point)
        allowed = mask if mask.dtype == torch.bool else mask > lowest
        known["allowed"] = allowed.expand(shape).numpy()
        if mask.dtype != torch.bool:
            known["bias"] = torch.where(allowed, mask, 0.0).expand(shape)
    return known
