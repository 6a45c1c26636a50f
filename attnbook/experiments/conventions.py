"""Does the package keep the conventions that the notation page lists? One small case each, worked out by hand.

Every measurement here is a boolean: the sentence on the page beside it is the convention.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnbook.errors import ShapeError
from attnbook.measure import experiment, measure
from attnbook.reference import attention, logsumexp, merge, online_softmax, padding_mask, softmax

EXACT = torch.float64
"""The dtype of the cases whose answer is compared to the last digits."""


@experiment
def run() -> dict[str, Any]:
    """All conventions, in the order of the page."""
    _shapes()
    _order()
    _masks()
    _empty_rows()
    _numbers()
    return {}


def _shapes() -> None:
    q, k, v = torch.zeros(2, 4, 3, 7), torch.zeros(2, 2, 5, 7), torch.zeros(2, 2, 5, 6)
    out, lse = attention(q, k, v, return_lse=True)
    measure("notation.layout", (tuple(out.shape), tuple(lse.shape)) == ((2, 4, 3, 6), (2, 4, 3)))
    heads = torch.arange(2.0)[None, :, None, None]  # value head g holds the number g
    used = attention(torch.zeros(1, 4, 1, 7), torch.zeros(1, 2, 1, 7), heads)
    measure("notation.groups", used.flatten().tolist() == [0, 0, 1, 1])
    nothing = attention(q, k[:, :, :0], v[:, :, :0])
    measure("notation.no_keys", nothing.shape == out.shape and not nothing.any())
    measure("notation.no_batch", attention(q[:0], k[:0], v[:0]).shape == out[:0].shape)
    text = "k has 3 heads (axis h) but q has 8: n_heads must be a multiple of n_kv_heads"
    measure("notation.error_text", _error(torch.zeros(1, 8, 2, 2), torch.zeros(1, 3, 2, 2)) == text)


def _order() -> None:
    q, k = torch.full((1, 1, 1, 4), 3.0, dtype=EXACT), torch.tensor([[1.0] * 4, [0.0] * 4], dtype=EXACT)[None, None]
    v = torch.tensor([[1.0], [0.0]], dtype=EXACT)[None, None]  # the output is the first weight
    measure("notation.scale", _near(attention(q, k, v), _logistic(12 / 2)))
    bias = torch.tensor([-5.0, 0.0], dtype=EXACT)
    measure("notation.scale_then_mask", _near(attention(q, k, v, mask=bias), _logistic(12 / 2 - 5)))
    measure("notation.scale_given", _near(attention(q, k, v, scale=0.25), _logistic(12 / 4)))


def _masks() -> None:
    measure("notation.true_keeps", _seen(1, 3, mask=torch.tensor([True, False, True])) == ["1.1"])
    measure("notation.infinity_hides", _seen(1, 3, mask=torch.tensor([0.0, -torch.inf, -torch.inf])) == ["1.."])
    # A whole row of it: as a mere number it would cancel, and every key would be seen. In float32 for float16 too.
    lowest = {dtype: torch.full((3,), torch.finfo(dtype).min) for dtype in (torch.float32, torch.float16)}
    rows = [_seen(1, 3, dtype, mask=mask) for dtype, mask in lowest.items()]
    measure("notation.lowest_hides", rows == [["..."], ["..."]])
    measure("notation.causal", _seen(2, 4, is_causal=True) == ["111.", "1111"])
    measure("notation.causal_short_memory", _seen(3, 2, is_causal=True) == ["..", "1.", "11"])
    measure(
        "notation.both_must_allow",
        _seen(2, 3, mask=torch.tensor([False, True, True]), is_causal=True) == [".1.", ".11"],
    )
    sides = [padding_mask(torch.tensor([2]), 3, side=side).flatten().tolist() for side in ("right", "left")]
    measure("notation.padding_sides", sides == [[True, True, False], [False, True, True]])


def _empty_rows() -> None:
    q, k, v = (x.requires_grad_() for x in torch.arange(18.0).sin().reshape(3, 1, 1, 2, 3))
    out, lse = attention(q, k, v, mask=torch.tensor([[True, True], [False, False]]), return_lse=True)
    (out.sum() + lse.sum()).backward()  # through the −inf too
    measure("notation.empty_row", not out[0, 0, 1].any() and lse[0, 0, 1] == -torch.inf)
    grads = [x.grad for x in (q, k, v) if x.grad is not None]
    finite = len(grads) == 3 and all(bool(grad.isfinite().all()) for grad in grads)
    measure("notation.empty_row_gradient", finite and not grads[0][0, 0, 1].any() and bool(grads[2].any()))
    row = torch.full((2,), -torch.inf)
    zeros = all(not weight.any() for weight in (softmax(row), online_softmax(row, block=1)))
    measure("notation.empty_softmax", zeros and logsumexp(row) == -torch.inf)
    asked = row.clone().requires_grad_()
    (softmax(asked).sum() + logsumexp(asked)).backward()
    measure("notation.empty_softmax_gradient", asked.grad is not None and asked.grad.tolist() == [0.0, 0.0])
    merged, together = merge(torch.zeros(1, 3), row[:1], torch.zeros(1, 3), row[:1])
    measure("notation.empty_merge", not merged.any() and together.item() == -torch.inf)


def _numbers() -> None:
    one, thousand = torch.ones(1, 1, 2, 1, dtype=EXACT), torch.full((1, 1, 1, 1), 1000.0, dtype=EXACT)
    _, lse = attention(thousand, one, one, scale=1.0, return_lse=True)
    measure("notation.natural_logarithm", _near(lse, 1000 + math.log(2)))
    rising = torch.tensor([0.0, 999.0, 1000.0], dtype=EXACT)  # sums collected early are scaled when 1000 arrives
    measure("notation.online", _near(online_softmax(rising, block=1)[1], _logistic(-1)))
    parts = [
        (torch.tensor([x], dtype=EXACT), torch.tensor(count, dtype=EXACT).log()) for x, count in ((0.0, 1), (10.0, 3))
    ]
    merged, together = merge(*parts[0], *parts[1])
    measure("notation.merge", _near(merged, 7.5) and _near(together, math.log(4)))
    dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    results = [attention(*torch.ones(3, 1, 1, 2, 3, dtype=dtype), return_lse=True) for dtype in dtypes]
    kept = [(out.dtype, softmax(out).dtype) for out, _ in results]
    measure("notation.out_dtype", kept == [(dtype, dtype) for dtype in dtypes])
    measure("notation.lse_dtype", [lse.dtype for _, lse in results] == [torch.float32] * 3 + [torch.float64])
    many = torch.ones(1, 1, 4099, 1, dtype=torch.float16)  # a float16 sum of ones stops at 2048
    measure("notation.accumulation", attention(0 * many[:, :, :1], 0 * many, many).item() == 1)


def _seen(t_q: int, t_kv: int, dtype: torch.dtype = torch.float32, **options: Any) -> list[str]:
    """Which keys each query sees, read off the package's weights: `1` sees, `.` does not."""
    q, k, v = torch.zeros(1, 1, t_q, 2), torch.zeros(1, 1, t_kv, 2), torch.eye(t_kv)[None, None]
    weight = attention(q.to(dtype), k.to(dtype), v.to(dtype), **options)[0, 0]
    return ["".join("1" if w > 0 else "." for w in row) for row in weight.tolist()]


def _logistic(x: float) -> float:
    """The first of two weights whose scores differ by x."""
    return 1 / (1 + math.exp(-x))


def _near(x: Tensor, expected: float) -> bool:
    return math.isclose(x.item(), expected, rel_tol=1e-12)


def _error(q: Tensor, k: Tensor) -> str:
    try:
        attention(q, k, k)
    except ShapeError as error:
        return str(error)
    return ""
