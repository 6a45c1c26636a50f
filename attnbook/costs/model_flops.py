"""Floating-point operations of a whole model, layer by layer: a multiplication and an addition are two.

    layer    projections     2 · t_q · (weights of the four linear maps)
             attention       4 · head_dim for each pair of a query and a key, and each query head
             feed-forward    2 · t_q · (weights of it that a token uses: its own experts, the shared ones, the router)
    last     unembedding     2 · t_q · vocab · d_model

Norms, RoPE, softmax, activations and biases are left out: they are no products of matrices. The first kind grows with
the number of tokens, attention with its square.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from attnbook.costs.flops import attention_flops, check_sizes
from attnbook.costs.models import find_shape
from attnbook.costs.shape import ModelShape


@dataclass(frozen=True)
class LayerFlops:
    """The operations of one layer, forward: the four linear maps of attention, its two products, the rest."""

    projections: int
    attention: int
    feed_forward: int

    @property
    def total(self) -> int:
        """All three."""
        return self.projections + self.attention + self.feed_forward


@dataclass(frozen=True)
class ModelFlops:
    """The operations of a model, forward: its layers, in order, and the product that makes logits."""

    layers: tuple[LayerFlops, ...]
    unembedding: int

    @property
    def projections(self) -> int:
        """The four linear maps of attention, all layers."""
        return sum(layer.projections for layer in self.layers)

    @property
    def attention(self) -> int:
        """Scores and averages, all layers: the part that is quadratic in the length."""
        return sum(layer.attention for layer in self.layers)

    @property
    def feed_forward(self) -> int:
        """The feed-forward parts of all layers, with their routers."""
        return sum(layer.feed_forward for layer in self.layers)

    @property
    def total(self) -> int:
        """Everything counted."""
        return sum(layer.total for layer in self.layers) + self.unembedding


def model_flops(
    model_or_config: str | PathLike[str] | Mapping[str, Any] | ModelShape,
    t_q: int,
    t_kv: int | None = None,
    *,
    b: int = 1,
    is_causal: bool = False,
) -> ModelFlops:
    """The operations of one forward pass of t_q new tokens against t_kv tokens (t_q where not given), b times.

    A prompt of t tokens is `t_q=t`; the next token after t − 1 others is `t_q=1, t_kv=t`, whose earlier keys and
    values are taken from a cache. With `is_causal` only pairs that may see each other are counted, windows included;
    without it all t_q · t_kv, as an implementation calculates them that hides scores instead of leaving them out.
    Takes what `kv_cache_bytes` takes.

    Raises ValueError for sizes below 0, and for a model whose operations do not follow from these parts: MLA, chunks
    (with `is_causal`), and those that `count_parameters` refuses for parts of their own.
    """
    shape = find_shape(model_or_config)
    t_kv = t_q if t_kv is None else t_kv
    check_sizes(t_q=t_q, t_kv=t_kv, b=b)
    _check_countable(shape, is_causal)
    layers = tuple(_layer(shape, layer, t_q, t_kv, b, is_causal) for layer in range(shape.layers))
    return ModelFlops(layers, unembedding=2 * b * t_q * shape.vocab * shape.d_model)


def _layer(shape: ModelShape, layer: int, t_q: int, t_kv: int, b: int, is_causal: bool) -> LayerFlops:
    found = attention_flops(
        t_q,
        t_kv,
        n_heads=shape.n_heads,
        head_dim=shape.head_dim,
        b=b,
        is_causal=is_causal,
        window=shape.windows[layer] if is_causal else None,
    )
    # The projections are those of the new tokens alone: earlier keys and values are there already.
    projected = 2 * (shape.n_heads + shape.n_kv_heads) * shape.head_dim * shape.d_model
    return LayerFlops(
        projections=2 * b * t_q * projected,
        attention=found.scores + found.values,
        feed_forward=2 * b * t_q * _used(shape, layer),
    )


def _used(shape: ModelShape, layer: int) -> int:
    """Weights of the feed-forward part of one layer that one token is multiplied with, biases not counted."""
    matrices = 3 if shape.gated else 2
    experts = shape.experts
    if experts is None or not experts.layers[layer]:
        return matrices * shape.d_model * (shape.d_ff or 0)
    router = shape.d_model * (experts.n + experts.shared_gate)
    return matrices * shape.d_model * (experts.active * experts.d_ff + experts.shared_d_ff) + router


def _check_countable(shape: ModelShape, is_causal: bool) -> None:
    """Raises ValueError, naming the part, for a model that has parts of another kind."""
    others = shape.uncounted
    if shape.latent is not None:
        others = "latent attention (MLA), whose products depend on what is unfolded"
    elif is_causal and any(shape.chunked):
        others = "attention in chunks"
    if others:
        raise ValueError(f"{shape.name}: expected a model whose operations follow from its shape, got {others}")
