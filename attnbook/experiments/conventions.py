"""Does the package keep the conventions that the notation page lists? One small case each, worked out by hand.

Every measurement here is a boolean: the sentence on the page beside it is the convention. What concerns attention is
asked of every implementation, through the one door, and holds where it holds in all of them. The options are in
`option_conventions`, how to contain what is not finite in `containment`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from attnbook.api import attention
from attnbook.errors import ShapeError
from attnbook.measure import experiment, measure
from attnbook.reference import logsumexp, merge, online_softmax, padding_mask, softmax

EXACT = torch.float64
"""The dtype of the cases whose answer is compared to the last digits."""

IMPLEMENTATIONS = ("reference", "tiled", "auto")
"""Whom the conventions are asked of; torch's own attention is what `auto` takes for plain calls."""

Attend: TypeAlias = Callable[..., Any]


@experiment
def run() -> dict[str, Any]:
    """All conventions of calls without options but masks."""
    measure_all(_shapes, _order, _masks, _empty_rows, _numbers, door=attention)
    _empty_softmax()
    _in_parts()
    return {}


def measure_all(*families: Callable[[Attend], dict[str, bool]], door: Attend) -> None:
    """Measure whether each convention of each family holds in all implementations."""
    for family in families:
        found = [family(partial(door, impl=name)) for name in IMPLEMENTATIONS]
        for convention in found[0]:
            measure(f"notation.{convention}", all(kept[convention] for kept in found))


def _shapes(attend: Attend) -> dict[str, bool]:
    q, k, v = torch.zeros(2, 4, 3, 7), torch.zeros(2, 2, 5, 7), torch.zeros(2, 2, 5, 6)
    out, lse = attend(q, k, v, return_lse=True)
    heads = torch.arange(2.0)[None, :, None, None]  # value head g holds the number g
    used = attend(torch.zeros(1, 4, 1, 7), torch.zeros(1, 2, 1, 7), heads)
    nothing = attend(q, k[:, :, :0], v[:, :, :0])
    text = "k has 3 heads (axis h) but q has 8: n_heads must be a multiple of n_kv_heads"
    return {
        "layout": (tuple(out.shape), tuple(lse.shape)) == ((2, 4, 3, 6), (2, 4, 3)),
        "groups": used.flatten().tolist() == [0, 0, 1, 1],
        "no_keys": nothing.shape == out.shape and not nothing.any(),
        "no_batch": attend(q[:0], k[:0], v[:0]).shape == out[:0].shape,
        "error_text": _error(attend, torch.zeros(1, 8, 2, 2), torch.zeros(1, 3, 2, 2)) == text,
    }


def _order(attend: Attend) -> dict[str, bool]:
    q, k = torch.full((1, 1, 1, 4), 3.0, dtype=EXACT), torch.tensor([[1.0] * 4, [0.0] * 4], dtype=EXACT)[None, None]
    v = torch.tensor([[1.0], [0.0]], dtype=EXACT)[None, None]  # the output is the first weight
    bias = torch.tensor([-5.0, 0.0], dtype=EXACT)
    return {
        "scale": near(attend(q, k, v), logistic(12 / 2)),
        "scale_then_mask": near(attend(q, k, v, mask=bias), logistic(12 / 2 - 5)),
        "scale_given": near(attend(q, k, v, scale=0.25), logistic(12 / 4)),
    }


def _masks(attend: Attend) -> dict[str, bool]:
    # A whole row of it: as a mere number it would cancel, and every key would be seen. In float32 for float16 too.
    lowest = {dtype: torch.full((3,), torch.finfo(dtype).min) for dtype in (torch.float32, torch.float16)}
    rows = [seen(attend, 1, 3, dtype, mask=mask) for dtype, mask in lowest.items()]
    both = seen(attend, 2, 3, mask=torch.tensor([False, True, True]), is_causal=True)
    sides = [padding_mask(torch.tensor([2]), 3, side=side).flatten().tolist() for side in ("right", "left")]
    return {
        "true_keeps": seen(attend, 1, 3, mask=torch.tensor([True, False, True])) == ["1.1"],
        "infinity_hides": seen(attend, 1, 3, mask=torch.tensor([0.0, -torch.inf, -torch.inf])) == ["1.."],
        "lowest_hides": rows == [["..."], ["..."]],
        "causal": seen(attend, 2, 4, is_causal=True) == ["111.", "1111"],
        "causal_short_memory": seen(attend, 3, 2, is_causal=True) == ["..", "1.", "11"],
        "both_must_allow": both == [".1.", ".11"],
        "padding_sides": sides == [[True, True, False], [False, True, True]],
    }


def _empty_rows(attend: Attend) -> dict[str, bool]:
    q, k, v = (x.requires_grad_() for x in torch.arange(18.0).sin().reshape(3, 1, 1, 2, 3))
    out, lse = attend(q, k, v, mask=torch.tensor([[True, True], [False, False]]), return_lse=True)
    (out.sum() + lse.sum()).backward()  # through the −inf too
    grads = [x.grad for x in (q, k, v) if x.grad is not None]
    finite = len(grads) == 3 and all(bool(grad.isfinite().all()) for grad in grads)
    return {
        "empty_row": not out[0, 0, 1].any() and bool(lse[0, 0, 1] == -torch.inf),
        "empty_row_gradient": finite and not grads[0][0, 0, 1].any() and bool(grads[2].any()),
    }


def _numbers(attend: Attend) -> dict[str, bool]:
    one, thousand = torch.ones(1, 1, 2, 1, dtype=EXACT), torch.full((1, 1, 1, 1), 1000.0, dtype=EXACT)
    _, lse = attend(thousand, one, one, scale=1.0, return_lse=True)
    dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    results = [attend(*torch.ones(3, 1, 1, 2, 3, dtype=dtype), return_lse=True) for dtype in dtypes]
    kept = [(out.dtype, softmax(out).dtype) for out, _ in results]
    many = torch.ones(1, 1, 4099, 1, dtype=torch.float16)  # a float16 sum of ones stops at 2048
    return {
        "natural_logarithm": near(lse, 1000 + math.log(2)),
        "out_dtype": kept == [(dtype, dtype) for dtype in dtypes],
        "lse_dtype": [lse.dtype for _, lse in results] == [torch.float32] * 3 + [torch.float64],
        "accumulation": attend(0 * many[:, :, :1], 0 * many, many).item() == 1,
    }


def _empty_softmax() -> None:
    row = torch.full((2,), -torch.inf)
    zeros = all(not weight.any() for weight in (softmax(row), online_softmax(row, block=1)))
    measure("notation.empty_softmax", zeros and logsumexp(row) == -torch.inf)
    asked = row.clone().requires_grad_()
    (softmax(asked).sum() + logsumexp(asked)).backward()
    measure("notation.empty_softmax_gradient", asked.grad is not None and asked.grad.tolist() == [0.0, 0.0])


def _in_parts() -> None:
    rising = torch.tensor([0.0, 999.0, 1000.0], dtype=EXACT)  # sums collected early are scaled when 1000 arrives
    measure("notation.online", near(online_softmax(rising, block=1)[1], logistic(-1)))
    parts = [
        (torch.tensor([x], dtype=EXACT), torch.tensor(count, dtype=EXACT).log()) for x, count in ((0.0, 1), (10.0, 3))
    ]
    merged, together = merge(*parts[0], *parts[1])
    measure("notation.merge", near(merged, 7.5) and near(together, math.log(4)))
    nothing = torch.full((1,), -torch.inf)
    merged, together = merge(torch.zeros(1, 3), nothing, torch.zeros(1, 3), nothing)
    measure("notation.empty_merge", not merged.any() and together.item() == -torch.inf)


def seen(attend: Attend, t_q: int, t_kv: int, dtype: torch.dtype = torch.float32, **options: Any) -> list[str]:
    """Which keys each query sees, read off the weights: `1` sees, `.` does not."""
    q, k, v = torch.zeros(1, 1, t_q, 2), torch.zeros(1, 1, t_kv, 2), torch.eye(t_kv)[None, None]
    weight = attend(q.to(dtype), k.to(dtype), v.to(dtype), **options)[0, 0]
    return ["".join("1" if w > 0 else "." for w in row) for row in weight.tolist()]


def logistic(x: float) -> float:
    """The first of two weights whose scores differ by x."""
    return 1 / (1 + math.exp(-x))


def near(x: Tensor, expected: float | Sequence[float]) -> bool:
    """Is x, number by number, what was expected, but for the last digits of float64?"""
    numbers = [expected] if isinstance(expected, int | float) else expected
    found = x.flatten().tolist()
    pairs = zip(found, numbers, strict=True)
    return all(math.isclose(got, wanted, rel_tol=1e-12, abs_tol=1e-15) for got, wanted in pairs)


def _error(attend: Attend, q: Tensor, k: Tensor) -> str:
    try:
        attend(q, k, k)
    except ShapeError as error:
        return str(error)
    return ""
