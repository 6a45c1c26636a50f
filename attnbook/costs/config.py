"""A `ModelShape` from any Hugging Face `config.json`, or a clear error; nothing is guessed.

What the families call things, and what they leave to their class, is in `families`; here is the order of asking:

    a language part nested in a bigger config   ─►  kinds of layers that are no attention: refused by name
    ─►  sizes, under today's or older names     ─►  one window a layer     ─►  experts, latent, biases
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from attnbook.costs import families
from attnbook.costs.experts import read_experts
from attnbook.costs.layers import read_windows, refuse_foreign
from attnbook.costs.shape import Latent, ModelShape


def read_config(source: str | PathLike[str] | Mapping[str, Any]) -> ModelShape:
    """The shape of the model that a Hugging Face config describes.

    `source` is a path to a `config.json`, a folder that holds one, or the dictionary itself. Understood: Llama,
    Mistral, Mixtral, Gemma 1–3 and 3n, Qwen 2–3 with and without experts, DeepSeek V2 and V3, gpt-oss, Llama 4, Phi,
    OLMo, Falcon, GPT-2, GPT-J, GPT-NeoX, Bloom, MPT, OPT and whatever uses the same keys:

    - without `num_key_value_heads` every head has its own keys and values;
    - `head_dim` counts as it is written; absent or null it is hidden_size / num_attention_heads;
    - windows come from `layer_types`, else from `sliding_window_pattern` (every p-th layer sees everything), else from
      `max_window_layers`, else `sliding_window` is for all; `use_sliding_window: false` and null mean none.

    The cache follows from these keys. Weights do not: `count_parameters` takes the model types that were compared
    with their class (`families.COUNTED`), and refuses the others.

    Raises ValueError that names the key for one that is missing or has a wrong value, for an encoder-decoder or an
    encoder, and, naming the kind of layer, for Mamba, linear attention and others that keep no keys and values;
    OSError where the file cannot be read.
    """
    config, name = _loaded(source)
    reader = Reader(config, name)
    refuse_foreign(reader)
    return _shape(reader)


class Reader:
    """A config while it is read: keys under any of their names, with the place in errors."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.name = name
        inner = next((config[key] for key in families.NESTED if isinstance(config.get(key), Mapping)), None)
        if isinstance(inner, Mapping) and isinstance(inner.get("text_config"), Mapping):
            inner = inner["text_config"]
        self.outer = config
        self.config = dict(config if inner is None else inner)
        self.model_type = str(self.config.get("model_type") or config.get("model_type") or "")
        for nested in ("attn_config", "ffn_config"):  # MPT, DBRX
            if isinstance(self.config.get(nested), Mapping):
                self.config = {**self.config[nested], **self.config}
        self.defaults = families.DEFAULTS.get(self.model_type, {})

    def get(self, key: str) -> Any:
        """The value under the first name of a key that is there and not null, else the family's default, else None."""
        names = (key, *families.KEYS.get(key, ()))
        for name in names:
            if self.config.get(name) is not None:
                return self.config[name]
        if any(name in self.config for name in names):
            return None
        return self.defaults.get(key)

    def number(self, key: str) -> int | None:
        """A whole number of at least 0, or None where the key is absent or null; ValueError for anything else."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{self.name}: {key}: expected a whole number of at least 0, got {value!r}")
        return value

    def needed(self, key: str) -> int:
        """A whole number of at least 1; ValueError that names the key, and its other names, where it is missing."""
        value = self.number(key)
        if value is None:
            others = families.KEYS.get(key, ())
            known = f" (or {', '.join(others)})" if others else ""
            raise ValueError(f"{self.name}: {key}{known}: expected a whole number, got nothing: the key is missing")
        if value < 1:
            raise ValueError(f"{self.name}: {key}: expected at least 1, got {value}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean; the default where it is absent or null."""
        value = self.get(key)
        return default if value is None else bool(value)

    def asks_for_latent(self) -> bool:
        """Must there be a rank, by the family or by another key of MLA? DeepSeek-VL2's small ones say that none is."""
        family = self.model_type in families.LATENT and self.get("use_mla") is not False
        return family or bool(self.number("qk_rope_head_dim"))


def _loaded(source: str | PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        return source, str(source.get("_name_or_path") or source.get("model_type") or "config")
    import json

    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got something else: {error}") from error
    if not isinstance(config, Mapping):
        raise ValueError(f"{path}: expected a JSON object, got {type(config).__name__}")
    return config, str(path)


def _shape(read: Reader) -> ModelShape:
    layers, d_model, n_heads = (read.needed(key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    windows, chunked = read_windows(read, layers)
    experts = read_experts(read, layers)
    latent = _latent(read)
    kind = read.model_type
    qkv_bias, o_bias, mlp_bias = _biases(read)
    theta, local_theta = _thetas(read)
    tied = read.get("tie_word_embeddings")
    if tied is None:
        tied = read.outer.get("tie_word_embeddings")
    return ModelShape(
        name=read.name,
        layers=layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=_kv_heads(read, n_heads),
        head_dim=_head_dim(read, latent, d_model, n_heads),
        vocab=read.needed("vocab_size"),
        windows=windows,
        chunked=chunked,
        d_ff=_d_ff(read, d_model, experts is not None and all(experts.layers)),
        latent=latent,
        experts=experts,
        shared_kv_layers=read.number("num_kv_shared_layers") or 0,
        gated=kind not in families.PLAIN_MLP,
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        mlp_bias=mlp_bias,
        qk_norm=_qk_norm(kind),
        norms=_norms(read),
        norm_bias=kind in families.NORM_BIAS,
        learned_positions=(read.number("max_position_embeddings") or 0) if kind in families.LEARNED_POSITIONS else 0,
        sinks=kind == "gpt_oss",
        extra_weights=_extra(read, d_model),
        uncounted=_uncounted(read),
        tied=kind not in families.UNTIED if tied is None else bool(tied),
        context=read.number("max_position_embeddings"),
        rope_theta=theta,
        local_rope_theta=local_theta,
        source=f"config.json, model_type {kind or 'not said'}",
    )


def _biases(read: Reader) -> tuple[bool, bool, bool]:
    """Which linear maps have a bias: those of q, k and v, that of the output, those of the feed-forward part."""
    kind = read.model_type
    every = kind in families.ALL_BIASES or read.flag("bias") or read.flag("use_bias")
    attention = read.flag("attention_bias", default=every)
    qkv = read.flag("qkv_bias", default=kind in families.QKV_BIAS) or read.flag("add_qkv_bias")
    return attention or qkv, attention, read.flag("mlp_bias") or every or kind in families.MLP_BIAS


def _thetas(read: Reader) -> tuple[float | None, float | None]:
    """RoPE's base, and that of the layers with a window: under keys of their own, or in today's `rope_parameters`."""
    rope = read.get("rope_parameters")
    rope = rope if isinstance(rope, Mapping) else {}
    everywhere, local = rope.get("full_attention") or rope, rope.get("sliding_attention") or {}
    theta, local_theta = read.get("rope_theta"), read.get("rope_local_base_freq")
    return (
        everywhere.get("rope_theta") if theta is None else theta,
        local.get("rope_theta") if local_theta is None else local_theta,
    )


def _uncounted(read: Reader) -> str:
    """What of the weights no field stands for; nothing where the class has exactly those that are counted."""
    kind = read.model_type
    if kind in families.WEIGHTS_UNKNOWN:
        return families.WEIGHTS_UNKNOWN[kind]
    if kind not in families.COUNTED:
        return f"model_type {kind!r}, whose class was not compared with our count"
    more = [key for key, kinds in families.MORE_WEIGHTS.items() if kind in kinds and read.flag(key)]
    return f"{more[0]}, with weights that are not counted for {kind}" if more else ""


def _head_dim(read: Reader, latent: Latent | None, d_model: int, n_heads: int) -> int:
    if latent is not None:  # the length of a query and of an unfolded key
        return latent.qk_nope_head_dim + latent.qk_rope_head_dim
    written = read.number("head_dim")
    if written:
        return written
    if d_model % n_heads:
        raise ValueError(
            f"{read.name}: head_dim: expected it to be there, because hidden_size {d_model} is no multiple of "
            f"num_attention_heads {n_heads}, got nothing"
        )
    return d_model // n_heads


def _kv_heads(read: Reader, n_heads: int) -> int:
    """Falcon and GPT-BigCode say `multi_query`: one head for all, unless the newer architecture counts them."""
    if read.model_type == "chatglm":
        return read.needed("num_key_value_heads") if read.flag("multi_query_attention") else n_heads
    if read.flag("multi_query") and not read.flag("new_decoder_architecture"):
        return 1
    return read.number("num_key_value_heads") or n_heads


def _d_ff(read: Reader, d_model: int, only_experts: bool) -> int | None:
    """The width of the dense layers; four times d_model where an old family leaves it out."""
    if only_experts:
        return None
    key = "intermediate_size_mlp" if read.number("intermediate_size_mlp") else "intermediate_size"
    value = read.get(key)
    if isinstance(value, list):
        if len(set(value)) > 1:
            raise ValueError(f"{read.name}: {key}: expected one width for all layers, got {sorted(set(value))}")
        value = value[0] if value else None
        return int(value) if value else read.needed(key)
    if value is None and read.model_type in families.PLAIN_MLP:
        return int(read.get("expansion_ratio") or 4) * d_model
    return read.needed(key)


def _latent(read: Reader) -> Latent | None:
    rank = read.number("kv_lora_rank")
    if not rank and not read.asks_for_latent():
        return None
    return Latent(
        kv_lora_rank=read.needed("kv_lora_rank"),
        qk_nope_head_dim=read.needed("qk_nope_head_dim"),
        qk_rope_head_dim=read.needed("qk_rope_head_dim"),
        v_head_dim=read.needed("v_head_dim"),
        q_lora_rank=read.number("q_lora_rank") or None,
    )


def _norms(read: Reader) -> int:
    if read.model_type == "falcon":  # one for attention and feed-forward part side by side, in the first architecture
        return 1 if read.flag("parallel_attn") and not read.flag("new_decoder_architecture") else 2
    return 1 if read.model_type in families.ONE_NORM else 4 if read.model_type in families.FOUR_NORMS else 2


def _extra(read: Reader, d_model: int) -> int:
    """Bloom normalises its embedding; Phi, GPT-J and CodeGen have a bias on their output."""
    if read.model_type == "bloom":
        return 2 * d_model
    return read.needed("vocab_size") if read.model_type in ("phi", "gptj", "codegen") else 0


def _qk_norm(kind: str) -> Literal["", "head", "full"]:
    if kind in families.QK_NORM_HEAD:
        return "head"
    return "full" if kind in families.QK_NORM_FULL else ""
