"""Three key and value heads of a trained model become one: their mean, or any one of the three. What does it cost?

SmolLM2 reads plain English before and after. All layers at once, then one layer alone; nothing is trained again. The
same weights laid out as many heads say whether the groups are read rightly: repeated one by one they are the same
model, repeated as a whole another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnbook.experiments import _smollm2 as shared
from attnbook.measure import experiment, measure
from attnbook.models import SmolLM2
from attnbook.models.weights import Layer

Change = Callable[[Tensor], Tensor]
"""Key or value maps of all heads of a layer, (n_kv_heads, head_dim, d_model), to those of other heads."""


@experiment
def run(text: str = shared.TEXT, every: int = 5) -> dict[str, Any]:
    """Merge all layers, then each `every`-th alone. Data: `layers`, and by name `rise` of the loss of one layer."""
    model, tokens = shared.model(), shared.text_tokens(text)
    h = model.config.n_kv_heads
    size = model.config.n_heads // h
    below = [model.embedding[tokens]]

    def see(layer: int, name: str, x: Tensor) -> None:
        if name == "x":
            below.append(x)

    whole = float(shared.losses(model.hidden(tokens, watch=see), tokens, 1))
    measure("groups.merged_none", whole)

    def lost(change: Change) -> float:
        return float(shared.losses(regrouped(model, change).hidden(tokens), tokens, 1))

    ones: dict[str, Change] = {"mean": mean} | {f"head {i}": one(i) for i in range(h)}
    all_layers = {name: lost(change) for name, change in ones.items()}
    alone = [loss for name, loss in all_layers.items() if name != "mean"]
    measure("groups.merged_mean", all_layers["mean"])
    measure("groups.merged_best_alone", min(alone))
    measure("groups.merged_worst_alone", max(alone))
    measure("groups.as_many_heads", abs(lost(lambda w: w.repeat_interleave(size, 0)) - whole))
    flipped = with_signs(model)
    measure("groups.flipped", abs(float(shared.losses(flipped.hidden(tokens), tokens, 1)) - whole))
    measure("groups.flipped_mean", float(shared.losses(regrouped(flipped, mean).hidden(tokens), tokens, 1)))
    measure("groups.tiled", lost(lambda w: w.repeat(size, 1, 1)))
    layers = range(0, model.config.n_layers, every)
    rise = {
        name: [loss_of_one(model, tokens, below[i], i, change) - whole for i in layers] for name, change in ones.items()
    }
    means, single = torch.tensor(rise["mean"]), torch.tensor([rise[f"head {i}"] for i in range(h)])  # (h, layers)
    measure("groups.one_layer_mean", means.median())
    measure("groups.one_layer_mean_most", means.max())
    measure("groups.one_layer_alone", single.median())
    measure("groups.one_layer_mean_wins", int((means < single.min(0).values).sum()))
    measure("groups.one_layer_mean_beats_average", int((means < single.mean(0)).sum()))
    measure("groups.one_layer_tried", len(layers))
    measure_likeness(model)
    return {"layers": list(layers), "rise": rise}


def measure_likeness(model: SmolLM2) -> None:
    """How alike the heads' maps are, number by number, in every layer, and how long their mean is against them."""
    maps = torch.stack([torch.stack(heads_of(model, layer)) for layer in model.layers]).flatten(3)  # (l, 2, h, n)
    unit = maps / maps.norm(dim=-1, keepdim=True)
    cosine = unit @ unit.mT
    apart = ~torch.eye(maps.shape[2], dtype=torch.bool)
    measure("groups.heads_alike", cosine[..., apart].abs().max())
    measure("groups.mean_length", (unit.mean(2).norm(dim=-1)).mean(), unit="ratio")


def with_signs(model: SmolLM2) -> SmolLM2:
    """The same model written differently: head 1's values have the other sign, and so has what reads them."""
    c = model.config
    size = c.n_heads // c.n_kv_heads * c.head_dim
    layers = []
    for layer in model.layers:
        qkv, out = layer.qkv.clone(), layer.out.clone()
        qkv[:, layer.ends[1] + c.head_dim : layer.ends[1] + 2 * c.head_dim] *= -1
        out[size : 2 * size] *= -1
        layers.append(replace(layer, qkv=qkv, out=out))
    return with_layers(model, layers, c.n_kv_heads)


def mean(heads: Tensor) -> Tensor:
    """All heads' mean as the only one."""
    return heads.mean(0, keepdim=True)


def one(i: int) -> Change:
    """Head i as the only one."""
    return lambda heads: heads[i : i + 1]


def heads_of(model: SmolLM2, layer: Layer) -> tuple[Tensor, Tensor]:
    """The maps of its keys and of its values, (n_kv_heads, head_dim, d_model) each."""
    shape = (model.config.n_kv_heads, model.config.head_dim, model.config.d_model)
    return layer.k_proj.reshape(shape), layer.v_proj.reshape(shape)


def changed(model: SmolLM2, layer: Layer, change: Change) -> Layer:
    """The layer with other key and value heads, as many as `change` gives."""
    k, v = (change(heads).flatten(0, 1).mT for heads in heads_of(model, layer))
    n = layer.ends[0]
    return replace(layer, qkv=torch.cat([layer.qkv[:, :n], k, v], 1), ends=(n, n + k.shape[1]))


def regrouped(model: SmolLM2, change: Change) -> SmolLM2:
    """The model with other key and value heads in every layer; all other weights are shared."""
    layers = [changed(model, layer, change) for layer in model.layers]
    n_kv_heads = (layers[0].ends[1] - layers[0].ends[0]) // model.config.head_dim
    return with_layers(model, layers, n_kv_heads)


def loss_of_one(model: SmolLM2, tokens: Tensor, x: Tensor, i: int, change: Change) -> float:
    """The loss where only layer i is changed, whose input is x (1, t, d_model): its one head stands for all."""
    h = model.config.n_kv_heads
    layers = list(model.layers)
    layers[i] = changed(model, layers[i], lambda heads: change(heads).expand(h, -1, -1))
    return float(shared.losses(with_layers(model, layers, h).from_layer(i, x), tokens, 1))


def with_layers(model: SmolLM2, layers: list[Layer], n_kv_heads: int) -> SmolLM2:
    """The model with other layers."""
    return SmolLM2(
        replace(model.config, n_kv_heads=n_kv_heads), layers, embedding=model.embedding, norm=model.norm,
        head=model.head, metadata=model.metadata,
    )  # fmt: skip
