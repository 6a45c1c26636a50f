"""Softmax then top-k, or top-k then softmax? And what else changes a weight: the others' scores, a bias, a single slot.

Three conventions are in use. Two of them are the same function, the third is not. Next to them: sigmoid scores, which
know nothing of one another, and a bias that is added where experts are chosen and nowhere else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnbook.api.moe import moe
from attnbook.experiments._experts import experts, routed
from attnbook.measure import experiment, measure, measure_mean

ORDERS: dict[str, dict[str, Any]] = {
    "raw": {"renormalize": False},
    "renormalised": {"renormalize": True},
    "before": {"renormalize": False, "top_k_before_scoring": True},
}
SHARES = (1 / 8, 2 / 8, 5 / 8)
SIZES = (64, 16, 8, 12)
"""t tokens, d components, e experts, f inside each."""


@experiment
def run(top_k: int = 2, repeats: int = 20, seed: int = 0) -> None:
    """A token by hand, then random tokens."""
    logits = torch.tensor([SHARES], dtype=torch.float64).log()
    for name, options in ORDERS.items():
        info = routed(logits, top_k, **options)
        measure(f"experts.hand_first_{name}", info.weights[0, 0])
        measure(f"experts.hand_second_{name}", info.weights[0, 1])
    generator = torch.Generator().manual_seed(seed)
    _measure_orders(top_k, repeats, generator)
    _measure_alone(generator)
    _measure_scores(torch.randn(512, 8, generator=generator, dtype=torch.float64), top_k)
    _measure_bias(torch.randn(repeats, 512, 8, generator=generator, dtype=torch.float64), top_k)


def _measure_orders(top_k: int, repeats: int, generator: torch.Generator) -> None:
    """The three orders on the same tokens and experts: their outputs, and what the weights sum to."""
    t, d, e, f = SIZES
    same, off, sums, everyone = 0.0, [], [], 0.0
    for _ in range(repeats):
        x = torch.randn(t, d, generator=generator, dtype=torch.float64)
        given = (x, torch.randn(e, d, generator=generator, dtype=x.dtype) * d**-0.5, *experts(generator, e, d, f))
        y = {name: moe(*given, top_k=top_k, impl="reference", **options) for name, options in ORDERS.items()}
        same = max(same, float((y["renormalised"][0] - y["before"][0]).abs().max()))
        off.append((y["raw"][0] - y["renormalised"][0]).norm() / y["renormalised"][0].norm())
        sums.append(y["raw"][1].weights.sum(-1).mean())
        full, also = (moe(*given, top_k=e, impl="reference", renormalize=r)[0] for r in (True, False))
        everyone = max(everyone, float((full - also).abs().max()))
    measure("experts.order_error", same)
    measure_mean("experts.raw_off", off, unit="ratio")
    measure_mean("experts.raw_sum", sums)
    measure("experts.everyone_error", everyone)


def _measure_alone(generator: torch.Generator) -> None:
    """With one expert a token, does the router learn from the output?"""
    t, d, e, f = SIZES
    x = torch.randn(t, d, generator=generator, dtype=torch.float64)
    router, weights = torch.randn(e, d, generator=generator, dtype=x.dtype) * d**-0.5, experts(generator, e, d, f)
    router.requires_grad_()
    for name, renormalize in (("renormalised", True), ("raw", False)):
        y, info = moe(x, router, *weights, top_k=1, renormalize=renormalize)
        (gradient,) = torch.autograd.grad(y.square().sum(), router)
        if renormalize:
            measure("experts.alone_weight", info.weights.min())
            measure("experts.alone_gradient", gradient.abs().max())
        else:
            measure(f"experts.alone_learns_{name}", bool((gradient.norm(dim=1) > 0).all()))


def _measure_scores(logits: Tensor, top_k: int) -> None:
    """Raise the logit of an expert that is not chosen, so little that it stays so: do the chosen ones' weights move?"""
    lowest = torch.zeros_like(logits).scatter(1, logits.argmin(1, keepdim=True), 1.0)
    raised = logits + lowest * (logits.topk(top_k).values[:, -1:] - logits.amin(1, keepdim=True)) * 0.9
    scorings: dict[str, dict[str, Any]] = {
        "softmax": {"renormalize": False}, "renormalised": {}, "sigmoid": {"renormalize": False, "scoring": "sigmoid"},
    }  # fmt: skip
    for name, options in scorings.items():
        before, after = (routed(given, top_k, **options) for given in (logits, raised))
        assert torch.equal(before.experts, after.experts)
        moved = (after.weights / before.weights - 1).abs().mean(1)
        if name == "softmax":
            measure_mean(f"experts.unchosen_moves_{name}", moved, unit="ratio")
        else:
            measure(f"experts.unchosen_moves_{name}", moved.max())
    measure_mean("experts.sigmoid_sum", before.weights.sum(1))
    made = routed(logits, top_k, scoring="sigmoid").weights.sum(1)
    measure("experts.sigmoid_renormalised_error", (made - 1).abs().max())


def _measure_bias(logits: Tensor, top_k: int) -> None:
    """Half a point for one expert, on sigmoid scores: added for the choice, as meant, and added to the logits."""
    bias = torch.zeros(logits.shape[-1], dtype=logits.dtype)
    bias[0] = 0.5
    error, changed, wrong, gained = 0.0, [], [], []
    for one in logits:
        before = routed(one, top_k, scoring="sigmoid", renormalize=False)
        after = routed(one, top_k, scoring="sigmoid", renormalize=False, selection_bias=bias)
        score = torch.sigmoid(one).gather(1, after.experts)
        error = max(error, float((after.weights - score).abs().max()))
        changed.append((before.experts.sort(1).values != after.experts.sort(1).values).any(1).double().mean())
        mistaken = torch.sigmoid(one + bias).gather(1, after.experts)[after.experts == 0]
        wrong.append((mistaken / score[after.experts == 0] - 1).mean())
        gained.append(after.loads[0] / before.loads[0])
    measure("experts.bias_weight_error", error)
    measure_mean("experts.bias_changes_choice", changed, unit="ratio")
    measure_mean("experts.bias_gains", gained, unit="ratio")
    measure_mean("experts.bias_in_logits_off", wrong, unit="ratio")
