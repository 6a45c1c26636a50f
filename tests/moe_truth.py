"""A mixture of experts by the definition: one token after another, one expert after another, in float64.

Shares no code with the package. `plain` is what one writes at first, every step in the dtype of x: the measure of
`tests.tolerance.assert_right`. `garbage` are wrong results that it must refuse.
"""

import math
from typing import NamedTuple

import numpy as np
import torch

from tests.tolerance import as_float64

DEFAULTS = {
    "renormalize": True,
    "scoring": "softmax",
    "top_k_before_scoring": False,
    "selection_bias": None,
    "routed_scale": 1.0,
    "capacity_factor": None,
    "shared": None,
}


class Truth(NamedTuple):
    y: np.ndarray
    weights: np.ndarray
    experts: np.ndarray
    loads: np.ndarray
    aux_loss: float
    dropped: np.ndarray
    z_loss: float


def truth(x, router_weight, w_gate, w_up, w_down, *, top_k, **options):
    """y (t, d) and everything about the routing, for x (t, d)."""
    options = DEFAULTS | options
    x, r, gate, up, down = (as_float64(a) for a in (x, router_weight, w_gate, w_up, w_down))
    t, e = x.shape[0], r.shape[0]
    weights, experts = np.zeros((t, top_k)), np.zeros((t, top_k), dtype=int)
    dropped, shares, squares = np.zeros((t, top_k), dtype=bool), np.zeros((t, e)), np.zeros(t)
    y, load = np.zeros_like(x), np.zeros(e, dtype=int)
    factor = options["capacity_factor"]
    room = math.inf if factor is None else math.ceil(round(factor * t * top_k / e, 9))
    for i in range(t):
        logits = r @ x[i]
        weights[i], experts[i], shares[i] = one_token(logits, top_k, options)
        squares[i] = (logits.max() + np.log(np.exp(logits - logits.max()).sum())) ** 2
        for slot, j in enumerate(experts[i]):
            dropped[i, slot] = load[j] >= room
            load[j] += 1
            if not dropped[i, slot]:
                y[i] += weights[i, slot] * expert(x[i], gate[j], up[j], down[j])
        for of_one in zip(*(as_float64(w) for w in options["shared"] or ()), strict=True):
            y[i] += expert(x[i], *of_one)
    weights[dropped] = 0
    aux = e * (load / (t * top_k) * shares.mean(0)).sum() if t else 0.0
    return Truth(y, weights, experts, load, aux, dropped, squares.mean() if t else 0.0)


def one_token(logits, top_k, options):
    """The weights and numbers of the experts chosen, and every expert's share of the score."""
    e = np.exp(logits - logits.max())
    score = e / e.sum() if options["scoring"] == "softmax" else 1 / (1 + np.exp(-logits))
    before = options["top_k_before_scoring"]
    wanted = logits if before else score
    if options["selection_bias"] is not None:
        wanted = wanted + as_float64(options["selection_bias"])
    chosen = sorted(range(len(logits)), key=lambda j: (-wanted[j], j))[:top_k]
    weight = score[chosen]
    if options["renormalize"] or (before and options["scoring"] == "softmax"):
        weight = weight / weight.sum()
    return weight * options["routed_scale"], chosen, score / score.sum()


def expert(x, gate, up, down):
    """SwiGLU of one token."""
    z = x @ gate
    return (z / (1 + np.exp(-z)) * (x @ up)) @ down


def plain(x, router_weight, w_gate, w_up, w_down, *, right, shared=None, **_):
    """y with the routing of `right` (a Truth), every step in x's dtype, differentiable in x and the experts."""
    y = torch.zeros_like(x)
    for slot in range(right.experts.shape[1]):
        j = torch.from_numpy(right.experts[:, slot])
        weight = torch.from_numpy(right.weights[:, slot, None]).to(x.dtype)
        y = y + weight * _rows(x, w_gate[j], w_up[j], w_down[j])
    for gate, up, down in zip(*(shared or ()), strict=True):
        y = y + (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down
    return y


def _rows(x, gate, up, down):
    x = x[:, None]
    return ((torch.nn.functional.silu(x @ gate) * (x @ up)) @ down)[:, 0]


def garbage(x, router_weight, w_gate, w_up, w_down, *, top_k, **options):
    """Wrong results by name; what is no mistake for these options is left out."""
    right = truth(x, router_weight, w_gate, w_up, w_down, top_k=top_k, **options).y
    arrays = x, router_weight, w_gate, w_up, w_down
    wrong = {
        "zeros": np.zeros_like(right),
        "half as large": right / 2,
        "NaN": np.where(np.arange(right.size).reshape(right.shape) == 0, np.nan, right),
        "gate and up swapped": truth(x, router_weight, w_up, w_gate, w_down, top_k=top_k, **options).y,
        "experts permuted": truth(x, router_weight.roll(1, 0), *arrays[2:], top_k=top_k, **options).y,
        "one expert fewer": truth(*arrays, top_k=top_k - 1, **options).y if top_k > 1 else right,
        "renormalised or not": truth(*arrays, top_k=top_k, **options | {
            "renormalize": not options.get("renormalize", True)}).y,
        "other scoring": truth(*arrays, top_k=top_k, **options | {
            "scoring": "softmax" if options.get("scoring") == "sigmoid" else "sigmoid"}).y,
    } | {f"no {name}": truth(*arrays, top_k=top_k, **options | {name: DEFAULTS[name]}).y
         for name in ("selection_bias", "routed_scale", "capacity_factor", "shared") if name in options}  # fmt: skip
    return {name: y for name, y in wrong.items() if not np.array_equal(y, right)}
