"""The backward pass by recomputation: what is kept for it, what it costs more, and whether its gradients are right.

What a forward pass keeps is counted where torch keeps it (`saved_tensors_hooks`), each tensor once. Gradients are
compared with float64, for the loss Σ out · g with a random g.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attnbook import tiled
from attnbook.experiments._attend import attend, weights
from attnbook.experiments._peak import peak_bytes
from attnbook.experiments.flash_exact import draw, off, plain
from attnbook.measure import experiment, measure, measure_mean

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@experiment
def run(n: int = 256, long: int = 2048, d: int = 64, tile: int = 64, repeats: int = 10, seed: int = 0) -> None:
    """Gradients at n tokens, `repeats` times; what is kept and held is counted at `long` tokens. One head, no mask."""
    q, k, v = draw(repeats, n, d, seed)
    g = torch.randn(q.shape, generator=torch.Generator().manual_seed(seed + 1000), dtype=torch.float64)

    def in_tiles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = tiled.attention(q, k, v, tile_q=tile, tile_k=tile)
        assert isinstance(out, Tensor)
        return out

    truth = gradients(attend, q, k, v, g)
    measure("flash.gradient_error64", (gradients(in_tiles, q, k, v, g) - truth).abs().max())
    short = [x.float() for x in (q, k, v, g)]
    exact = gradients(attend, *(x.double() for x in short))
    errors = [off(gradients(call, *short), exact) for call in (plain, in_tiles)]
    measure_mean("flash.gradient_plain", errors[0], unit="ratio")
    measure_mean("flash.gradient_tiled", errors[1], unit="ratio")
    measure_mean("flash.gradient_tiled_over_plain", errors[1] / errors[0], unit="ratio")
    _measure_delta(q, k, v, g, tile)
    _measure_lse_of_base_two(q, k, v, g, truth)
    _measure_kept(long, d)
    work = {name: operations(call, q[:1], k[:1], v[:1]) for name, call in (("plain", plain), ("tiled", in_tiles))}
    measure("flash.backward_more", work["tiled"][1] / work["plain"][1], unit="ratio")
    measure("flash.step_more", sum(work["tiled"]) / sum(work["plain"]), unit="ratio")


def gradients(call: Attention, q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """The gradients of Σ call(q, k, v) · g in q, k and v: (b, h, 3, t, d) for q, k, v, g (b, h, t, d)."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    return torch.stack(torch.autograd.grad((call(*leaves) * g).sum(), leaves), 2)


def kept(call: Attention, q: Tensor, k: Tensor, v: Tensor) -> int:
    """How many numbers torch keeps between the forward and the backward pass, inputs included, each once."""
    found: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        return x

    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = call(*leaves)
    found.pop(0, None)  # nothing is stored at no address
    del out
    return sum(found.values())


def operations(call: Attention, q: Tensor, k: Tensor, v: Tensor) -> tuple[int, int]:
    """Operations of the matrix products in the forward and in the backward pass."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    with FlopCounterMode(display=False) as forward:
        out = call(*leaves)
    with FlopCounterMode(display=False) as backward:
        torch.autograd.grad(out.sum(), leaves)
    return forward.get_total_flops(), backward.get_total_flops()


def _measure_kept(n: int, d: int) -> None:
    """Numbers kept, and bytes held at the worst moment of a forward and a backward pass."""
    q, k, v = torch.zeros(3, 1, 1, n, d).unbind()
    for name, call in (("plain", plain), ("tiled", tiled.attention)):
        measure(f"flash.kept_{name}", kept(call, q, k, v))
        peak = peak_bytes(lambda call=call: gradients(call, q, k, v, torch.ones_like(q)))  # type: ignore[misc]
        measure(f"flash.step_peak_{name}", peak, unit="B")


def _measure_delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor, tile: int) -> None:
    """One number a row, Σ g · out, stands for Σ weight · d_weight over the row; the weights come back from lse."""
    weight, (out, lse) = weights(q, k), tiled.attention(q, k, v, return_lse=True, tile_q=tile, tile_k=tile)
    by_weights = (weight * (g @ v.mT)).sum(-1)
    measure("flash.delta_error", (by_weights - (g * out).sum(-1)).abs().max())
    again = torch.exp(q @ k.mT / q.shape[-1] ** 0.5 - lse[..., None])
    measure("flash.weights_again_error", (again - weight).abs().max())
    rounded = torch.exp(q @ k.mT / q.shape[-1] ** 0.5 - lse.bfloat16()[..., None])
    measure("flash.bfloat16_lse_off", (rounded.sum(-1) - 1).abs().max(), unit="ratio")


def _measure_lse_of_base_two(q: Tensor, k: Tensor, v: Tensor, g: Tensor, truth: Tensor) -> None:
    """What happens where a forward pass hands its lse over in base 2 and the backward pass takes it for natural."""
    out, lse = tiled.attention(q, k, v, return_lse=True)
    wrong = torch.stack(tiled.attention_backward(g, None, q, k, v, out, lse / math.log(2))[:3], 2)
    measure("flash.base_two_is_silent", bool(wrong.isfinite().all()))
    measure_mean("flash.base_two_off", off(wrong, truth), unit="ratio")
    length = wrong.flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
    measure_mean("flash.base_two_shrinks", length, unit="ratio")
