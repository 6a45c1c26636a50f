"""How many weights a model has, and how many of them one token uses: counted from its shape, part by part.

Exact where the shape says everything (biases, norms, sinks are fields of `ModelShape`); what a config does not tell
us, such as adapters or a vision tower, is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from attnbook.costs.models import find_shape
from attnbook.costs.shape import Experts, ModelShape


@dataclass(frozen=True)
class Parameters:
    """Counts of weights, by part.

    `embedding` includes learned positions; `unembedding` is 0 where it is tied to the embedding. `router` is the part
    that chooses experts. `idle`: weights of routed experts that a token does not visit, all layers together; they are
    part of `feed_forward`.
    """

    embedding: int
    unembedding: int
    attention: int
    feed_forward: int
    router: int
    norms: int
    idle: int

    @property
    def total(self) -> int:
        """All weights, a tied matrix once."""
        return self.embedding + self.unembedding + self.attention + self.feed_forward + self.router + self.norms

    @property
    def active(self) -> int:
        """The weights that take part in one token: all but those of the experts that it does not visit.

        Both embeddings are in it, as in Mixtral's figures; others (gpt-oss, DeepSeek) leave the input's out.
        """
        return self.total - self.idle


def count_parameters(model_or_config: str | PathLike[str] | Mapping[str, Any] | ModelShape) -> Parameters:
    """The number of weights of a model, by part.

    Takes what `kv_cache_bytes` takes. Raises ValueError as it does for what cannot be read, and for a model whose
    weights no field of the shape stands for, or whose `model_type` was not compared with the class of transformers
    (`families.COUNTED`). The tests hold the published totals of many models.
    """
    shape = find_shape(model_or_config)
    if shape.uncounted:
        raise ValueError(f"{shape.name}: expected a model whose weights follow from its shape, got {shape.uncounted}")
    embedding = shape.vocab * shape.d_model
    experts = shape.experts
    sparse = sum(experts.layers) if experts else 0
    feed_forward = (shape.layers - sparse) * _mlp(shape, shape.d_ff or 0, bias=shape.mlp_bias)
    router = idle = 0
    if experts:
        one = _mlp(shape, experts.d_ff, bias=experts.expert_bias)
        shared = _mlp(shape, experts.shared_d_ff, bias=False) if experts.shared_d_ff else 0
        feed_forward += sparse * (experts.n * one + shared)
        idle = sparse * (experts.n - experts.active) * one
        router = sparse * _router(shape, experts)
    return Parameters(
        embedding=embedding + shape.learned_positions * shape.d_model + shape.extra_weights,
        unembedding=0 if shape.tied else embedding,
        attention=shape.layers * (_latent(shape) if shape.latent else _attention(shape)),
        feed_forward=feed_forward,
        router=router,
        norms=_norms(shape),
        idle=idle,
    )


def _attention(shape: ModelShape) -> int:
    """The four projections of one layer with their biases, and its sinks."""
    q, kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    weights = shape.d_model * (q + 2 * kv) + q * shape.d_model
    biases = (q + 2 * kv) * shape.qkv_bias + shape.d_model * shape.o_bias
    return weights + biases + shape.n_heads * shape.sinks


def _latent(shape: ModelShape) -> int:
    """The projections of one MLA layer: queries (perhaps through a latent of their own), the latent, and out of it."""
    mla = shape.latent
    assert mla is not None
    q = shape.n_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    queries = shape.d_model * q if mla.q_lora_rank is None else mla.q_lora_rank * (shape.d_model + q)
    down = shape.d_model * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    up = mla.kv_lora_rank * shape.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return queries + down + up + shape.n_heads * mla.v_head_dim * shape.d_model


def _mlp(shape: ModelShape, width: int, *, bias: bool) -> int:
    """One feed-forward part: gate, up and down, or up and down."""
    inwards = 2 if shape.gated else 1
    return (inwards + 1) * shape.d_model * width + bias * (inwards * width + shape.d_model)


def _router(shape: ModelShape, experts: Experts) -> int:
    return experts.n * (shape.d_model + experts.router_bias) + shape.d_model * experts.shared_gate


def _norms(shape: ModelShape) -> int:
    """All the norms: those of d_model, those on queries and keys, MLA's on its latents, and the last one."""
    one = shape.d_model * (2 if shape.norm_bias else 1)
    heads = {"": 0, "head": 2, "full": shape.n_heads + shape.n_kv_heads}[shape.qk_norm] * shape.head_dim
    latents = 0
    if shape.latent is not None:
        latents = shape.latent.kv_lora_rank + (shape.latent.q_lora_rank or 0)
    return shape.layers * (shape.norms * one + heads + latents) + one
