"""What reaches the first layer of a deep stack, and what the last: with and without residual, with and without norms?

Nothing is trained: the models are at their start and read one batch of `copies`. Backward, the length of the gradient
at the first layer tells whether the loss is felt there. Forward, how alike the tokens of a sequence have become after
the last layer tells whether there is still something to read off them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnbook.experiments._stacked import Norms, Stacked, block_gradients, copies, fresh, replace, streams
from attnbook.measure import experiment, measure

KINDS = {"both": (True, True), "no_residual": (False, True), "no_norm": (True, False), "neither": (False, False)}
"""Residual and norms: are they there?"""


@experiment
def run(seed: int = 0, models: int = 6, depths: tuple[int, ...] = (2, 6, 12), width: int = 16) -> dict[str, object]:
    """Data: `depths`, and by kind `first`, the first layer's gradient, and `alike`, both (depths, models)."""
    first: dict[str, Tensor] = {}
    alike: dict[str, Tensor] = {}
    for kind, (residual, norms) in KINDS.items():
        found = [_look(seed, models, depth, width, residual=residual, norms=norms) for depth in depths]
        first[kind], alike[kind] = (torch.stack(parts) for parts in zip(*found, strict=True))
        deep = first[kind][-1] / first[kind][0]
        if kind == "no_residual":  # from one start to another it differs by powers of ten, downwards too
            measure("norm.gradient_stays_no_residual", bool(deep.log().mean().exp() > 0.05))
        else:
            _measure_middle(f"norm.gradient_ratio_{kind}", deep)
        if norms:
            _measure_middle(f"norm.alike_shallow_{kind}", alike[kind][0], unit="ratio")
            _measure_middle(f"norm.alike_deep_{kind}", alike[kind][-1], unit="ratio")
    _measure_middle("norm.gradient_deep_neither", first["neither"][-1])
    measure("norm.gradient_larger_without", bool((first["no_residual"][-1].mean() > first["both"][-1].mean()).item()))
    return {"depths": depths, "first": first, "alike": alike}


def _look(seed: int, models: int, depth: int, width: int, *, residual: bool, norms: bool) -> tuple[Tensor, Tensor]:
    """The length of the first block's gradient, and the mean cosine of two tokens after the last: (s,) each."""
    model = fresh(seed, models, depth, width=width, residual=residual)
    if not norms:
        _without_norms(model)
    batch = copies(torch.Generator().manual_seed(seed), models)
    with torch.no_grad():
        last = streams(model, batch[0])[-1]  # (s · b, t, d)
    return block_gradients(model, batch)[:, 0], _cosine(last).view(models, -1).mean(1)


def _without_norms(model: Stacked) -> None:
    for name, module in list(model.named_modules()):
        if isinstance(module, Norms):
            replace(model, name, nn.Identity())


def _cosine(x: Tensor) -> Tensor:
    """The mean cosine of the angle between two different tokens of a sequence: (b, t, d) -> (b,)."""
    t = x.shape[1]
    unit = x / x.norm(dim=-1, keepdim=True)
    mean: Tensor = ((unit @ unit.mT).sum((1, 2)) - t) / (t * (t - 1))
    return mean


def _measure_middle(id: str, values: Tensor, unit: str = "") -> None:
    """The geometric mean, since the values lie powers of ten apart, and its standard deviation."""
    logs = values.double().log()
    middle = float(logs.mean().exp())
    measure(id, middle, unit=unit, spread=middle * float(logs.std()) / len(values) ** 0.5)
