"""Can attention be followed by hand? One query, three keys, √d = 2, and three values.

The dot products are 4, 2 and 0, so the scores are 2, 1 and 0. The weights are read off the package's own three lines:
with the identity matrix as V they return them.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

import torch

from attnbook.measure import experiment, measure
from attnbook.reference import softmax, three_lines

Q = [[1, 1, 1, 1]]
K = [[1, 1, 1, 1], [1, 1, 1, -1], [1, 1, -1, -1]]
V = [[10], [20], [30]]


@experiment
def run() -> dict[str, Any]:
    """The whole calculation, step by step, in float64; then the query twice as long, and the query turned round."""
    q, k, v = (torch.tensor(x, dtype=torch.float64) for x in (Q, K, V))
    measure("oneline.statements", _statements())

    names = ("first", "second", "third")
    for name, dot in zip(names, (q @ k.mT)[0], strict=True):
        measure(f"oneline.hand_dot_{name}", dot)
    weight = _weights(q, k)
    for name, score in zip(names, (weight / weight[2]).log(), strict=True):  # scores, up to what they have in common
        measure(f"oneline.hand_score_{name}", score)
    for name, w in zip(names, weight, strict=True):
        measure(f"oneline.hand_weight_{name}", w)
    measure("oneline.hand_weight_sum", weight.sum())
    measure("oneline.hand_weight_ratio", weight[0] / weight[1], unit="ratio")
    measure("oneline.hand_out", three_lines.attention(q, k, v)[0, 0])
    in_numpy = three_lines.attention(*(x.numpy() for x in (q, k, v)))
    measure("oneline.numpy_too", abs(float(in_numpy[0, 0]) - float(three_lines.attention(q, k, v)[0, 0])) < 1e-12)
    measure("oneline.hand_mean", v.mean())

    measure("oneline.hand_doubled_first", _weights(2 * q, k)[0])
    measure("oneline.hand_doubled_out", three_lines.attention(2 * q, k, v)[0, 0])
    measure("oneline.hand_zero_out", three_lines.attention(0 * q, k, v)[0, 0])
    turned = three_lines.attention(-q, k, v)[0, 0]
    measure("oneline.hand_turned_out", turned)
    middle = (turned + three_lines.attention(q, k, v)[0, 0]) / 2
    measure("oneline.hand_turned_symmetric", abs(middle - v.mean()) < 1e-12)
    moved = three_lines.attention(q, k, v + 100)[0, 0] - three_lines.attention(q, k, v)[0, 0]
    measure("oneline.hand_shift", moved)
    # Softmax down the column of scores that each key has: with one query, every weight is 1.
    sideways = softmax(q @ k.mT / q.shape[-1] ** 0.5, axis=-2)
    measure("oneline.hand_shift_wrong_axis", (sideways @ (v + 100) - sideways @ v)[0, 0])
    return {"weight": weight, "v": v}


def _weights(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    weight = three_lines.attention(q, k, torch.eye(len(k), dtype=q.dtype))
    assert isinstance(weight, torch.Tensor)
    return weight[0]


def _statements() -> int:
    """How many statements `three_lines.attention` has between its docstring and its return, by the syntax tree."""
    (function,) = ast.parse(inspect.getsource(three_lines.attention)).body
    assert isinstance(function, ast.FunctionDef)
    docstring = isinstance(function.body[0], ast.Expr)
    returns = isinstance(function.body[-1], ast.Return)
    return sum(1 for node in ast.walk(function) if isinstance(node, ast.stmt)) - 1 - docstring - returns
