"""The experts of a config: how many, how wide, how many a token visits, in which layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbook.costs.shape import Experts

if TYPE_CHECKING:
    from attnbook.costs.config import Reader


def read_experts(read: Reader, layers: int) -> Experts | None:
    """The experts, or None for a dense model; raises ValueError that names a missing or wrong key."""
    n = read.number("num_local_experts")
    if not n or n == 1:
        return None
    # Llama 4 has intermediate_size for its experts and intermediate_size_mlp for its dense layers.
    width = read.number("moe_intermediate_size") or read.needed("intermediate_size")
    kind = read.model_type
    active = 1 if kind == "llama4_text" and read.number("num_experts_per_tok") is None else None
    return Experts(
        n=n,
        active=active or read.needed("num_experts_per_tok"),
        d_ff=width,
        layers=_layers(read, layers),
        shared_d_ff=_shared(read, width),
        router_bias=kind in ("gpt_oss", "deepseek_v3"),
        expert_bias=kind == "gpt_oss",
        shared_gate=kind == "qwen2_moe",
    )


def _shared(read: Reader, width: int) -> int:
    """The width of the experts that every token visits, added up."""
    if read.model_type == "llama4_text":
        return width  # always one, as wide as a routed one
    written = read.number("shared_expert_intermediate_size")
    if written is not None:
        return written
    return (read.number("n_shared_experts") or read.number("num_shared_experts") or 0) * width


def _layers(read: Reader, layers: int) -> tuple[bool, ...]:
    """In which layers there are experts: three families, three ways to say it."""
    if read.model_type == "llama4_text":
        listed = read.get("moe_layers")
        step = read.number("interleave_moe_layer_step") or 1
        return tuple(layer in listed if listed is not None else (layer + 1) % step == 0 for layer in range(layers))
    dense = read.get("mlp_only_layers") or []
    step = read.number("decoder_sparse_step") or 1  # Qwen: every step-th, counted from one
    first = read.number("first_k_dense_replace") or 0  # DeepSeek: none in the first layers
    every = read.number("moe_layer_freq") if not isinstance(read.get("moe_layer_freq"), list) else None
    listed = read.get("moe_layer_freq")
    if isinstance(listed, list):
        if len(listed) != layers:
            raise ValueError(f"{read.name}: moe_layer_freq: expected {layers} entries, got {len(listed)}")
        return tuple(bool(entry) for entry in listed)
    return tuple(
        layer not in dense and (layer + 1) % step == 0 and layer >= first and layer % (every or 1) == 0
        for layer in range(layers)
    )
