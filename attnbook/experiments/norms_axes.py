"""Over which numbers does a norm take its mean, and what changes when other tokens come along?

LayerNorm, RMSNorm and BatchNorm on the same random tokens: what each brings to mean 0 and variance 1, and whether a
token's result depends on the tokens beside it. Then BatchNorm's two modes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnbook.measure import experiment, measure, measure_mean
from attnbook.reference import BatchNorm, LayerNorm, RMSNorm


@experiment
def run(seed: int = 0, b: int = 16, t: int = 13, d: int = 64, steps: int = 100) -> dict[str, Tensor]:
    """Tokens (b, t, d) whose components differ in size and place. Data: each norm's output by name, and `x`."""
    generator = torch.Generator().manual_seed(seed)
    size = 1 + 3 * torch.rand(d, generator=generator)
    place = 4 * torch.randn(d, generator=generator)

    def draw(b: int, t: int) -> Tensor:
        return torch.randn(b, t, d, generator=generator) * size + place

    x = draw(b, t)
    norms = {"layer": LayerNorm(d), "rms": RMSNorm(d), "batch": BatchNorm(d)}
    with torch.no_grad():
        y = {name: norm(x) for name, norm in norms.items()}
        _moments(y)
        for name in ("layer", "rms", "batch"):
            norm = norms[name]
            alone = torch.stack([(norm(x[i : i + 1]) - y[name][i]).abs().amax() for i in range(b)])
            short = (norm(x[:, : t // 2]) - y[name][:, : t // 2]).abs().amax((1, 2))
            random = name == "batch"
            measure(f"norm.{name}_alone_error", alone.mean(), spread=float(alone.std()) / b**0.5 if random else None)
            measure(f"norm.{name}_short_error", short.mean(), spread=float(short.std()) / b**0.5 if random else None)
        measure("norm.torch_error", _difference(nn.LayerNorm(d)(x), y["layer"]))
        measure("norm.torch_rms_error", _difference(nn.RMSNorm(d, eps=1e-6)(x), y["rms"]))
        other = nn.BatchNorm1d(d)
        measure("norm.torch_batch_error", _difference(other(x.mT).mT, BatchNorm(d)(x)))
        _modes(BatchNorm(d), [draw(4, t) for _ in range(steps)], x)
    return {"x": x, **y}


def _moments(y: dict[str, Tensor]) -> None:
    """What has mean 0 and variance 1: a token over its components, or a component over the tokens."""
    layer, rms, batch = (y[name].double() for name in ("layer", "rms", "batch"))
    measure("norm.layer_mean", layer.mean(-1).abs().max())
    measure("norm.layer_variance_error", (layer.var(-1, correction=0) - 1).abs().max())
    measure("norm.rms_mean_square_error", (rms.square().mean(-1) - 1).abs().max())
    tokens = batch.flatten(0, 1)
    measure("norm.batch_mean", tokens.mean(0).abs().max())
    measure("norm.batch_variance_error", (tokens.var(0, correction=0) - 1).abs().max())
    variances = tokens.var(-1, correction=0)
    measure("norm.batch_token_variance_low", variances.min())
    measure("norm.batch_token_variance_high", variances.max())


def _modes(norm: BatchNorm, batches: list[Tensor], x: Tensor) -> None:
    """Train a BatchNorm, that is let it see batches, and ask it in both modes about one sequence and about many."""
    norm.eval()
    untrained = norm(x)
    measure("norm.batch_untrained_does_nothing", _difference(untrained, x) < 1e-3 * float(x.abs().max()))
    norm.train()
    for batch in batches:
        norm(batch)
    norm.eval()
    measure("norm.batch_eval_alone_error", _difference(norm(x[:1]), norm(x)[:1]))
    kept = norm(x)
    components = (kept.flatten(0, 1).var(0, correction=0) - 1).abs()
    measure_mean("norm.batch_eval_variance_error", components.tolist())
    norm.train()
    measure("norm.batch_train_changes_state", _changes_state(norm, x))
    measure("norm.batch_modes_gap", _difference(norm(x[:1]), kept[:1]) > 0.3)


def _changes_state(norm: BatchNorm, x: Tensor) -> bool:
    """Is the state after looking at x another than before?"""
    before = norm.running_mean.clone()
    norm(x)
    return not torch.equal(before, norm.running_mean)


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
