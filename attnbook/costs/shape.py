"""What a published model is made of, as far as its costs go: sizes only, no weights. Standard library only.

Everything that differs from layer to layer is a tuple with one entry a layer (`windows`), or a rule whose result is
one (`Experts.layers`), so that nothing downstream has to know a family's pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA): keys and values of all heads are unfolded from one short vector a token.

    The cache of a layer holds, for each token, `kv_lora_rank + qk_rope_head_dim` numbers, whatever the number of heads:

        compressed (kv_lora_rank) ──► keys without position (qk_nope_head_dim) and values (v_head_dim) of every head
        key with RoPE (qk_rope_head_dim), shared by all heads

    All lengths count numbers. `q_lora_rank` is None where queries are projected at once. DeepSeek-AI 2024, section 2.1
    (arXiv:2405.04434).
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None


@dataclass(frozen=True)
class Experts:
    """The mixture of experts that takes the place of the feed-forward part in some layers.

    `n` experts of width `d_ff`, of which a token visits `active`; `shared_d_ff` is the width of the experts that every
    token visits, added up (0: none); `layers` has one entry a layer, True where that layer has experts. `router_bias`:
    one number an expert and layer; `expert_bias`: the experts' own biases; `shared_gate`: d_model numbers a layer that
    weigh the shared expert (Qwen2-MoE).
    """

    n: int
    active: int
    d_ff: int
    layers: tuple[bool, ...]
    shared_d_ff: int = 0
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.n:
            raise ValueError(f"active experts: expected 1 to {self.n}, the number of experts, got {self.active}")


@dataclass(frozen=True)
class ModelShape:
    """The sizes of one decoder-only transformer; lengths count numbers, `context` tokens.

    - `windows`, one entry a layer: how many keys a query of that layer sees, itself included; None sees all.
    - `chunked`, one entry a layer: True where that number is a chunk (keys of the query's own chunk), not a window
      that slides. Empty: no layer is.
    - `shared_kv_layers`: so many of the last layers keep no cache of their own and read an earlier layer's (Gemma-3n).
    - `latent`: set for MLA; then `n_kv_heads` and `head_dim` say nothing about the cache.
    - `d_ff`: width of a dense feed-forward part; None where every layer has experts.
    - `gated`: three matrices in the feed-forward part (SwiGLU, GeGLU), else two.
    - `qk_norm`: norms on queries and keys, `"head"` (head_dim numbers each) or `"full"` (all heads' together).
    - `norms`: norms of d_model numbers in a layer; `norm_bias`: each has a bias too (LayerNorm).
    - `learned_positions`: rows of a table of learned positions, 0 where there is none.
    - `sinks`: one number a query head and layer. `tied`: input and output embedding are one matrix.
    - `extra_weights`: weights that have no field here, such as a bias of the output. `uncounted` names parts whose
      weights are not known from the shape; `count_parameters` then refuses.

    Raises ValueError, naming the field, for sizes that do not fit one another.
    """

    name: str
    layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab: int
    windows: tuple[int | None, ...]
    d_ff: int | None = None
    chunked: tuple[bool, ...] = ()
    latent: Latent | None = None
    experts: Experts | None = None
    shared_kv_layers: int = 0
    gated: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: Literal["", "head", "full"] = ""
    norms: int = 2
    norm_bias: bool = False
    learned_positions: int = 0
    sinks: bool = False
    tied: bool = False
    extra_weights: int = 0
    uncounted: str = ""
    context: int | None = None
    rope_theta: float | None = None
    local_rope_theta: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for field in ("layers", "d_model", "n_heads", "n_kv_heads", "head_dim"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field}: expected at least 1, got {getattr(self, field)}")
        if self.latent is None and self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"{self.name}: n_heads: expected a multiple of n_kv_heads {self.n_kv_heads}, got {self.n_heads}"
            )
        for field, given in (("windows", self.windows), ("chunked", self.chunked or self.windows)):
            if len(given) != self.layers:
                raise ValueError(f"{self.name}: {field}: expected {self.layers} entries, one a layer, got {len(given)}")
        for layer, window in enumerate(self.windows):
            if window is not None and window < 1:
                raise ValueError(f"{self.name}: windows: expected at least 1 key in layer {layer}, got {window}")
        if self.experts is not None and len(self.experts.layers) != self.layers:
            raise ValueError(
                f"{self.name}: experts.layers: expected {self.layers} entries, one a layer, "
                f"got {len(self.experts.layers)}"
            )
        if self.d_ff is None and (self.experts is None or not all(self.experts.layers)):
            raise ValueError(f"{self.name}: d_ff: expected a width for the layers without experts, got none")
        if not 0 <= self.shared_kv_layers < self.layers:
            raise ValueError(
                f"{self.name}: shared_kv_layers: expected 0 to {self.layers - 1}, got {self.shared_kv_layers}"
            )

    @property
    def kv_elements(self) -> int:
        """Numbers that one token leaves in the cache of one layer: keys and values of all heads, or the latent."""
        if self.latent is not None:
            return self.latent.kv_lora_rank + self.latent.qk_rope_head_dim
        return 2 * self.n_kv_heads * self.head_dim

    @property
    def attention(self) -> Literal["MHA", "GQA", "MQA", "MLA"]:
        """How heads share keys and values: one each, a group, all, or through a latent."""
        if self.latent is not None:
            return "MLA"
        if self.n_kv_heads == self.n_heads:
            return "MHA"
        return "MQA" if self.n_kv_heads == 1 else "GQA"
