"""What a `config.json` leaves to the class that reads it: old key names, defaults, and what a family always has.

Published configs name their sizes in different words and leave out what equals a default of their class. Each table
is from the configuration classes of transformers (`configuration_<model_type>.py`) or from the model's own code.
"""

from __future__ import annotations

from typing import Any

KEYS = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads", "multi_query_group_num"),
    "head_dim": ("attention_head_dim", "kv_channels", "head_size"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "n_ctx", "max_sequence_length"),
    "sliding_window_pattern": ("_sliding_window_pattern",),
    "num_local_experts": ("num_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_top_k", "moe_topk", "top_k_experts"),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
}
"""Today's name of a key, and the older ones; the first that is there and not null counts."""

NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
"""Where a model of several senses keeps the config of its language part."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
    "gemma2": {"sliding_window": 4096, "sliding_window_pattern": 2, "head_dim": 256},
    "gemma3n_text": {
        "num_key_value_heads": 2,
        "num_attention_heads": 8,
        "head_dim": 256,
        "sliding_window": 512,
        "sliding_window_pattern": 5,
        "num_kv_shared_layers": 15,
    },
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "gpt_oss": {"sliding_window": 128, "sliding_window_pattern": 2, "head_dim": 64},
    "mistral": {"sliding_window": 4096, "num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    "llama4_text": {"attention_chunk_size": 8192, "no_rope_layer_interval": 4, "interleave_moe_layer_step": 1},
    "qwen2": {"max_window_layers": 28, "use_sliding_window": False},
    "qwen2_moe": {"max_window_layers": 28, "use_sliding_window": False},
    "qwen3": {"max_window_layers": 28, "use_sliding_window": False},
    "qwen3_moe": {"use_sliding_window": False},
    "falcon": {"multi_query": True, "parallel_attn": True},
    "gpt_bigcode": {"multi_query": True},
}
"""Defaults that published configs of a model type rely on; a key that is there, null too, goes before them."""

UNTIED = frozenset(
    {
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "deepseek_v2",
        "deepseek_v3",
        "gpt_neox",
        "gptj",
        "phi",
        "phi3",
        "phimoe",
        "olmo2",
        "olmo3",
        "olmoe",
        "gpt_oss",
        "llama4_text",
        "stablelm",
        "codegen",
        "granitemoe",
        "dbrx",
        "chatglm",
    }
)
"""Model types whose class keeps two embeddings where `tie_word_embeddings` is absent; the base class ties them."""

PLAIN_MLP = frozenset(
    {
        "gpt2",
        "gpt_neox",
        "gptj",
        "gpt_neo",
        "bloom",
        "falcon",
        "RefinedWeb",
        "RefinedWebModel",
        "phi",
        "opt",
        "mpt",
        "gpt_bigcode",
        "starcoder2",
        "codegen",
    }
)
"""Model types whose feed-forward part has two matrices."""

NORM_BIAS = PLAIN_MLP - {"mpt"}
"""Model types whose norms are LayerNorm with a bias."""

MLP_BIAS = frozenset({"gptj", "codegen"})
"""Model types whose feed-forward part has biases and whose attention has none, said by no key."""

ALL_BIASES = frozenset({"gpt2", "gpt_neox", "bloom", "phi", "opt", "gpt_bigcode", "gpt_neo"})
"""Model types whose linear maps all have a bias, said by no key."""

ONE_NORM = frozenset({"phi", "gptj", "codegen", "cohere", "cohere2", "RefinedWebModel"})
"""Model types with one norm a layer, attention and feed-forward part side by side."""

LEARNED_POSITIONS = frozenset({"gpt2", "gpt_neo", "gpt_bigcode", "opt"})

LATENT = frozenset({"deepseek_v2", "deepseek_v3", "minicpm3"})
"""Model types whose attention is MLA, unless `use_mla` is false."""

QK_NORM_HEAD = frozenset({"qwen3", "qwen3_moe", "gemma3_text", "gemma3", "exaone4"})
QK_NORM_FULL = frozenset({"olmo2", "olmo3", "olmoe"})
FOUR_NORMS = frozenset({"gemma2", "gemma3_text", "gemma3"})
QKV_BIAS = frozenset({"qwen2", "qwen2_moe"})

ENCODERS = frozenset(
    {
        "bert",
        "bert-generation",
        "big_bird",
        "data2vec-text",
        "ernie",
        "megatron-bert",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm-roberta-xl",
        "xmod",
        "distilbert",
        "albert",
        "electra",
        "deberta",
        "deberta-v2",
        "xlm-roberta",
        "modernbert",
        "mpnet",
        "camembert",
        "layoutlm",
        "vit",
        "clip",
        "siglip",
    }
)
"""Model types that see everything at once: they keep no cache."""

ATTENTION_LAYERS = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "local_attention": "window",
    "chunked_attention": "chunk",
}
"""Names of layers in `layer_types` that keep keys and values, and which of them."""

FOREIGN = {
    "layers_block_type": "",
    "block_types": "",
    "_block_types": "",
    "hybrid_override_pattern": "",
    "attn_layer_period": "Mamba layers between those of attention",
    "full_attention_interval": "linear_attention",
    "linear_attn_config": "linear_attention",
    "attn_type_list": "linear_attention",
    "mamba_d_state": "mamba",
    "mamba_expand": "mamba",
    "ssm_cfg": "mamba",
    "state_size": "mamba",
    "rwkv_version": "rwkv",
    "attention_hidden_size": "rwkv",
}
"""Keys that only models with layers of another kind than attention have, and what those are; "" where the key says."""

WEIGHTS_UNKNOWN = {
    "gemma3n_text": "embeddings a layer, AltUp and LAuReL, whose weights are not counted",
}
"""Model types with weights that no size of the shape stands for."""

COUNTED = frozenset(
    {
        "bloom",
        "codegen",
        "cohere",
        "cohere2",
        "deepseek_v2",
        "deepseek_v3",
        "ernie4_5",
        "exaone4",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "granite",
        "granitemoe",
        "helium",
        "llama",
        "llama4_text",
        "minicpm3",
        "ministral3",
        "mistral",
        "mixtral",
        "mpt",
        "olmo2",
        "olmo3",
        "olmoe",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "smollm3",
        "starcoder2",
    }
)
"""Model types whose class, built by transformers 5.24.0 without weights, has as many parameters as we count.

Compared for the class's defaults and with each of its switches turned. Weights of all others are refused, not guessed.
"""

MORE_WEIGHTS = {
    "qk_layernorm": ("phi",),
    "use_qk_norm": ("cohere",),
    "add_cross_attention": ("gpt2", "gpt_bigcode"),
    "attention_bias": ("deepseek_v2", "deepseek_v3", "minicpm3", "helium"),
    "mlp_bias": ("deepseek_v2",),
}
"""Switches that give some of these model types weights that no field stands for."""

UNCOUNTED = {
    "global_head_dim": "layers of different head_dim",
    "per_layer_config": "layers of different shapes",
    "swa_head_dim": "layers of different head_dim",
    "swa_num_key_value_heads": "layers with different numbers of heads",
    "block_configs": "layers of different shapes",
    "index_head_dim": "a second cache of index keys",
    "cross_attention_layers": "layers that attend to an image",
}
"""Keys of decoders whose cache has parts that nothing here counts."""

CACHE_UNKNOWN = {
    "longcat_flash": "two caches in each layer",
    "hrm_text": "layers that a token passes more than once",
    "gemma4_text": "layers of different head_dim",
    "gemma4_unified_text": "layers of different head_dim",
}
"""Model types whose cache has parts that nothing here counts, said by no key."""
