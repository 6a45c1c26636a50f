"""The weights of one layer of a model of Llama's kind, and the sizes of all, as a GGUF file has them.

What stands out: projections that meet the same input are one matrix, and lie input first (`Layer`): the product of a
single row, which a generated token is, reads them so at nearly twice the speed. And they lie in large pages where the
system has those, which saves another tenth: prefetching ends at the end of a page.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.reference.rope_scaling import RopeScaling


@dataclass(frozen=True)
class Config:
    """The sizes of a model, and the two numbers that its norms and RoPE need."""

    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    vocab: int
    context: int
    """The positions that it was trained for."""
    theta: float
    eps: float
    end: int | None
    """The token with which it ends an answer."""
    scaling: RopeScaling | None = None
    """How RoPE's turns are slowed for longer contexts; no file that can be read here asks for it."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], vocab: int) -> Config:
        """From a GGUF file's keys. Raises ValueError for another architecture and for RoPE that is scaled or partial.

        Raises KeyError for a key that must be there.
        """
        kind = metadata.get("general.architecture")
        if kind != "llama":
            raise ValueError(f"general.architecture is {kind!r}: expected 'llama'")
        d_model, n_heads = metadata["llama.embedding_length"], metadata["llama.attention.head_count"]
        head_dim = metadata.get("llama.attention.key_length", d_model // n_heads)
        turned = metadata.get("llama.rope.dimension_count", head_dim)
        if turned != head_dim or metadata.get("llama.attention.value_length", head_dim) != head_dim:
            raise ValueError(
                f"llama.rope.dimension_count is {turned}: expected the whole head_dim {head_dim}, also of v"
            )
        scaling = metadata.get("llama.rope.scaling.type", "none")
        if scaling != "none":
            raise ValueError(f"llama.rope.scaling.type is {scaling!r}: expected 'none'")
        return cls(
            n_layers=metadata["llama.block_count"], d_model=d_model, n_heads=n_heads,
            n_kv_heads=metadata.get("llama.attention.head_count_kv", n_heads), head_dim=head_dim,
            d_ff=metadata["llama.feed_forward_length"], vocab=vocab, context=metadata["llama.context_length"],
            theta=metadata.get("llama.rope.freq_base", 10000.0), eps=metadata["llama.attention.layer_norm_rms_epsilon"],
            end=metadata.get("tokenizer.ggml.eos_token_id"),
        )  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer's weights, fused and input first as they lie in memory; the properties are views, (out, in)."""

    attention_norm: Tensor  # (d_model,)
    qkv: Tensor  # (d_model, (n_heads + 2 · n_kv_heads) · head_dim): q, k, v side by side
    out: Tensor  # (n_heads · head_dim, d_model)
    mlp_norm: Tensor  # (d_model,)
    gate_up: Tensor  # (d_model, 2 · d_ff)
    down_proj: Tensor  # (d_model, d_ff): here the product of a row is faster this way round
    ends: tuple[int, int]
    """The columns of `qkv` at which q and k end."""

    @property
    def q_proj(self) -> Tensor:
        """(n_heads · head_dim, d_model); the pairs of RoPE are rows 0 and 1, 2 and 3, … of each head."""
        return self.qkv[:, : self.ends[0]].mT

    @property
    def k_proj(self) -> Tensor:
        """(n_kv_heads · head_dim, d_model), pairs like those of `q_proj`."""
        return self.qkv[:, self.ends[0] : self.ends[1]].mT

    @property
    def v_proj(self) -> Tensor:
        """(n_kv_heads · head_dim, d_model)."""
        return self.qkv[:, self.ends[1] :].mT

    @property
    def o_proj(self) -> Tensor:
        """(d_model, n_heads · head_dim); columns 0 to head_dim − 1 are head 0's."""
        return self.out.mT

    @property
    def gate_proj(self) -> Tensor:
        """(d_ff, d_model): what goes through SiLU."""
        return self.gate_up[:, : self.gate_up.shape[1] // 2].mT

    @property
    def up_proj(self) -> Tensor:
        """(d_ff, d_model): what the gate multiplies."""
        return self.gate_up[:, self.gate_up.shape[1] // 2 :].mT


def in_large_pages(x: Tensor) -> Tensor:
    """A contiguous copy of x, in pages of 2 MiB where the system can be asked for them (Linux)."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or not x.numel():
        return x.clone(memory_format=torch.contiguous_format)
    room = mmap.mmap(-1, x.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        room.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(room, dtype=x.dtype).view(x.shape).copy_(x)


def read_layer(i: int, config: Config, read: Callable[[str], Tensor]) -> Layer:
    """Layer i by a function that gives the tensor of a name."""

    def part(name: str) -> Tensor:
        return read(f"blk.{i}.{name}.weight")

    n = config.n_heads * config.head_dim
    return Layer(
        attention_norm=part("attn_norm"),
        qkv=in_large_pages(torch.cat([part("attn_q"), part("attn_k"), part("attn_v")]).mT),
        out=in_large_pages(part("attn_output").mT),
        mlp_norm=part("ffn_norm"),
        gate_up=in_large_pages(torch.cat([part("ffn_gate"), part("ffn_up")]).mT),
        down_proj=in_large_pages(part("ffn_down")),
        ends=(n, n + config.n_kv_heads * config.head_dim),
    )
