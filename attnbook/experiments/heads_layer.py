"""Is the layer with heads what the formula says? Each head by itself, the parts of W_O, torch's own layer.

And its order: heads are consecutive components, each is scaled by the length of a head, the output goes through W_O.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnbook.experiments._attend import attend
from attnbook.measure import experiment, measure
from attnbook.reference import MultiHeadAttention, merge_heads, split_heads, three_lines


@experiment
def run(d_model: int = 64, n_heads: int = 8, b: int = 2, t: int = 10, seed: int = 0) -> dict[str, Tensor]:
    """Random tokens and weights, in float64. Data: `differs` (heads, heads), how far two heads' weights are apart."""
    torch.manual_seed(seed)
    layer = MultiHeadAttention(d_model, n_heads, dtype=torch.float64)
    x = torch.randn(b, t, d_model, dtype=torch.float64)
    with torch.no_grad():
        y, weight = layer(x, return_weights=True)
        measure("heads.torch_error", error(torch_layer(layer)(x, x, x)[0], y))
        measure("heads.loop_error", error(one_by_one(layer, x), y))
        measure("heads.torch_weights_error", error(torch_weights(layer, x), weight))
        measure("heads.same_shape", y.shape == x.shape)
        split = split_heads(x, n_heads)
        measure("heads.split_shape", tuple(split.shape) == (b, n_heads, t, d_model // n_heads))
        measure("heads.merge_undoes_split", torch.equal(merge_heads(split), x))
        _measure_first_head(layer, x)
    return {"weights": weight}


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference."""
    return float((found - expected).abs().max())


def torch_layer(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """`torch.nn.MultiheadAttention` with the same four maps."""
    theirs = nn.MultiheadAttention(layer.d_model, layer.n_heads, bias=False, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in (layer.q_proj, layer.k_proj, layer.v_proj)]))
    theirs.out_proj.weight.copy_(layer.o_proj.weight)
    return theirs


def torch_weights(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """Each head's weights by torch's own layer: (b, h, t, t)."""
    found: Tensor = torch_layer(layer)(x, x, x, average_attn_weights=False)[1]
    return found


def one_by_one(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """Each head by the three lines, with its own thin maps; their outputs are not joined but added: (b, t, d_model)."""
    d = layer.head_dim
    y = torch.zeros_like(x)
    for head in range(layer.n_heads):
        own = slice(head * d, (head + 1) * d)
        q, k, v = (x @ p.weight[own].T for p in (layer.q_proj, layer.k_proj, layer.v_proj))  # (b, t, d)
        y = y + three_lines.attention(q, k, v) @ layer.o_proj.weight[:, own].T
    return y


def _measure_first_head(layer: MultiHeadAttention, x: Tensor) -> None:
    """Without the first d columns of W_O, what is missing is the first head's part and nothing else."""
    d = layer.head_dim
    q, k, v = layer.project(x)
    first = attend(q, k, v)[:, 0] @ layer.o_proj.weight[:, :d].T
    whole = layer(x)
    layer.o_proj.weight[:, :d] = 0
    measure("heads.first_head_error", error(whole - layer(x), first))
