"""Where in a model did the first NaN come from? A hook on every module finds out in one forward pass.

A small model with softmax as the formula is written, in which the query map of one block has grown too large.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnbook.measure import experiment, measure
from attnbook.reference import naive_softmax, softmax

CULPRIT = 1
"""The block whose queries have grown."""


class Softmax(nn.Module):
    """A module of its own, so that a hook can see what goes in and what comes out."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, score: Tensor) -> Tensor:
        """(b, t, t) -> (b, t, t)."""
        return self.function(score)


class Block(nn.Module):
    """x + attention(norm(x)), one head."""

    def __init__(self, width: int, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.softmax = Softmax(function)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, width) -> (b, t, width)."""
        y = self.norm(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        weight: Tensor = self.softmax(q @ k.mT / y.shape[-1] ** 0.5)
        out: Tensor = x + weight @ v
        return out


def build(
    function: Callable[[Tensor], Tensor] = naive_softmax, width: int = 32, blocks: int = 3, seed: int = 3
) -> nn.Sequential:
    """A model of a few blocks; the queries of block `CULPRIT` are 300 times as large as they should be."""
    with torch.random.fork_rng():  # modules draw their weights from the global generator: leave it as it was
        torch.manual_seed(seed)
        model = nn.Sequential(*(Block(width, function) for _ in range(blocks)), nn.Linear(width, 7))
    culprit = model[CULPRIT]
    assert isinstance(culprit, Block)
    with torch.no_grad():
        culprit.q.weight *= 300
    return model


def watch(model: nn.Module) -> list[str]:
    """Note the name of every module whose output is not finite, in the order in which they finish."""
    bad: list[str] = []

    def look(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if not output.isfinite().all():
                bad.append(name)

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(look(name))
    return bad


@experiment
def run(seed: int = 3) -> None:
    """Run the model with the formula, and with the maximum subtracted, watched by hooks."""
    x = torch.randn(2, 11, 32, generator=torch.Generator().manual_seed(seed))
    model = build(seed=seed)
    order: list[str] = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: order.append(name))
    bad = watch(model)
    with torch.no_grad():
        out = model(x)
        measure("softmax.nan_share_of_output", out.isnan().float().mean(), unit="ratio")
        measure("softmax.first_bad_is_the_softmax", bad[0] == f"{CULPRIT}.softmax")
        measure("softmax.nan_never_goes_away", bad == order[order.index(bad[0]) :])
        measure("softmax.fine_modules_before", order.index(bad[0]))
        measure("softmax.largest_score_before_nan", _largest_score(model, x))
        stable = build(softmax, seed=seed)
        quiet = watch(stable)
        stable(x)
        measure("softmax.stable_model_is_finite", not quiet)


def _largest_score(model: nn.Sequential, x: Tensor) -> float:
    """The largest score that enters the softmax of the culprit."""
    seen: list[float] = []
    culprit = model[CULPRIT]
    assert isinstance(culprit, Block)
    culprit.softmax.register_forward_pre_hook(lambda _, inputs: seen.append(float(inputs[0].max())))
    model(x)
    return seen[0]
