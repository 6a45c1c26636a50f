"""Configs of real families, each with its own words for the same sizes; what cannot be read is refused by name."""

import json
import re
from pathlib import Path

import pytest

from attnbook.costs import kv_cache_bytes, read_config

CONFIGS = Path(__file__).parent / "configs"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 30,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 7,
    "vocab_size": 11,
}

# name: way of sharing, n_kv_heads, head_dim, layers that see everything, the window or chunk of the others
READ = {
    "bloom-560m": ("MHA", 16, 64, 24, None),
    "deepseek-v2-lite": ("MLA", 16, 192, 27, None),
    "falcon-40b": ("GQA", 8, 64, 60, None),
    "falcon-7b": ("MQA", 1, 64, 32, None),
    "gemma-2-9b": ("GQA", 8, 256, 21, 4096),
    "gemma-3-1b": ("MQA", 1, 256, 4, 512),
    "gemma-3-4b": ("GQA", 4, 256, 5, 1024),
    "gemma-3n-e4b": ("GQA", 2, 256, 7, 512),
    "gpt-oss-20b": ("GQA", 8, 64, 12, 128),
    "gpt2": ("MHA", 12, 64, 12, None),
    "llama-3.1-70b": ("GQA", 8, 128, 80, None),
    "llama-4-scout": ("GQA", 8, 128, 12, 8192),
    "mistral-7b-v0.1": ("GQA", 8, 128, 0, 4096),
    "mistral-7b-v0.3": ("GQA", 8, 128, 32, None),
    "mixtral-8x7b": ("GQA", 8, 128, 32, None),
    "phi-2": ("MHA", 32, 80, 32, None),
    "pythia-1.4b": ("MHA", 16, 128, 24, None),
    "qwen2.5-7b": ("GQA", 4, 128, 28, None),
    "qwen3-30b-a3b": ("GQA", 4, 128, 48, None),
}


def test_every_fixture_is_read_and_names_its_source():
    """The folder and the table above hold the same models."""
    assert {path.stem for path in CONFIGS.glob("*.json")} == set(READ)
    for path in CONFIGS.glob("*.json"):
        assert json.loads(path.read_text())["_source"]


@pytest.mark.parametrize("name", READ)
def test_a_published_config_is_read(name):
    """Heads, their length, and each layer's window come out right, from a path and from the dictionary alike."""
    shape = read_config(CONFIGS / f"{name}.json")
    full = [window for window in shape.windows if window is None]
    others = {window for window in shape.windows if window is not None}
    assert (shape.attention, shape.n_kv_heads, shape.head_dim, len(full), others) == (
        *READ[name][:4],
        set() if READ[name][4] is None else {READ[name][4]},
    )
    as_dict = read_config(json.loads((CONFIGS / f"{name}.json").read_text()))
    assert kv_cache_bytes(as_dict, tokens=5000) == kv_cache_bytes(shape, tokens=5000)


def test_where_the_windows_are():
    """Gemma-2 begins with a window, Gemma-3's sixth layer sees everything, Gemma-3n's fifth, Llama 4's fourth."""

    def first_full(name):
        return read_config(CONFIGS / f"{name}.json").windows.index(None)

    assert [first_full(name) for name in ("gemma-2-9b", "gemma-3-4b", "gemma-3n-e4b", "llama-4-scout")] == [1, 5, 4, 3]


def test_missing_heads_of_keys_mean_one_each():
    """Absent and null `num_key_value_heads` are multi-head attention."""
    assert read_config(LLAMA).n_kv_heads == 6
    assert read_config({**LLAMA, "num_key_value_heads": None}).n_kv_heads == 6
    assert read_config({**LLAMA, "num_key_value_heads": 2}).n_kv_heads == 2


def test_head_dim_as_written_or_divided():
    """Written, it need not be hidden_size / heads; absent or null it is, and must divide."""
    assert read_config({**LLAMA, "head_dim": 8}).head_dim == 8
    assert read_config({**LLAMA, "head_dim": None}).head_dim == read_config(LLAMA).head_dim == 5
    with pytest.raises(ValueError, match="head_dim: expected it to be there, because hidden_size 31 is no multiple"):
        read_config({**LLAMA, "hidden_size": 31})


def test_switches_of_windows():
    """`use_sliding_window` false switches off, true counts from `max_window_layers`; null and 0 are no window."""
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 9, "max_window_layers": 2}
    assert read_config(qwen).windows == (None, None, None)  # off where the key is absent, as in its class
    assert read_config({**qwen, "use_sliding_window": False}).windows == (None, None, None)
    assert read_config({**qwen, "use_sliding_window": True}).windows == (None, None, 9)
    mistral = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 2}
    assert read_config({**mistral, "sliding_window": None}).windows == (None, None, None)
    assert read_config({**mistral, "sliding_window": 7}).windows == (7, 7, 7)
    assert read_config(mistral).windows == (4096,) * 3  # its class's default
    explicit = {
        **mistral,
        "sliding_window": 7,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    }
    assert read_config(explicit).windows == (None, 7, None)
    cohere = {**LLAMA, "model_type": "cohere2", "sliding_window": 7, "sliding_window_pattern": 3}
    assert read_config(cohere).windows == (7, 7, None)


def test_which_layers_have_experts():
    """Each family's way to say it: dense ones first, listed, every n-th, or all."""
    moe = {**LLAMA, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 3}

    def layers(**changes):
        experts = read_config({**moe, **changes}).experts
        assert experts is not None
        return experts.layers

    assert layers() == (True, True, True)
    assert layers(first_k_dense_replace=1) == (False, True, True)
    assert layers(mlp_only_layers=[1]) == (True, False, True)
    assert layers(decoder_sparse_step=2) == (False, True, False)
    assert layers(moe_layer_freq=2) == (True, False, True)
    assert layers(moe_layer_freq=[0, 1, 1]) == (False, True, True)
    assert layers(model_type="llama4_text", interleave_moe_layer_step=2, intermediate_size_mlp=9) == (
        False,
        True,
        False,
    )
    assert read_config({**LLAMA, "num_experts": 0}).experts is None


def test_shared_experts():
    """Counted in experts (DeepSeek), as a width (Qwen2-MoE), or always one (Llama 4)."""
    moe = {**LLAMA, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 3}
    assert read_config({**moe, "n_shared_experts": 2}).experts.shared_d_ff == 6
    assert read_config({**moe, "shared_expert_intermediate_size": 17}).experts.shared_d_ff == 17
    assert read_config(CONFIGS / "llama-4-scout.json").experts.shared_d_ff == 8192


def test_other_names_of_the_same_keys():
    """MPT nests its heads of keys; ChatGLM counts groups; GPT-BigCode says that one serves all."""
    mpt = {"model_type": "mpt", "d_model": 30, "n_heads": 6, "n_layers": 3, "vocab_size": 11, "expansion_ratio": 4}
    assert read_config({**mpt, "attn_config": {"kv_n_heads": 3}}).n_kv_heads == 3
    assert read_config(mpt).d_ff == 120
    glm = {
        "model_type": "chatglm",
        "num_layers": 3,
        "hidden_size": 30,
        "num_attention_heads": 6,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "kv_channels": 5,
        "ffn_hidden_size": 7,
        "padded_vocab_size": 11,
    }
    assert (read_config(glm).n_kv_heads, read_config(glm).vocab) == (2, 11)
    code = {"model_type": "gpt_bigcode", "n_layer": 3, "n_head": 6, "n_embd": 30, "vocab_size": 11}
    assert read_config(code).n_kv_heads == 1
    assert read_config({**code, "multi_query": False}).n_kv_heads == 6


def test_the_base_of_rope_under_old_and_new_keys():
    """Keys of their own, or `rope_parameters` for all layers or for each kind; absent is None."""

    def thetas(**keys):
        shape = read_config({**LLAMA, **keys})
        return shape.rope_theta, shape.local_rope_theta

    assert thetas() == (None, None)
    assert thetas(rope_theta=7.0, rope_local_base_freq=5.0) == (7.0, 5.0)
    assert thetas(rope_parameters={"rope_type": "default", "rope_theta": 7.0}) == (7.0, None)
    kinds = {"full_attention": {"rope_theta": 7.0}, "sliding_attention": {"rope_theta": 5.0}}
    assert thetas(rope_parameters=kinds) == (7.0, 5.0)


REFUSED = {
    "encoder-decoder": (
        {"model_type": "t5", "is_encoder_decoder": True, "d_kv": 64},
        "is_encoder_decoder: expected a decoder, got an encoder-decoder, which keeps a second cache",
    ),
    "encoder": ({**LLAMA, "model_type": "bert"}, "model_type: expected a decoder, got bert, an encoder"),
    "mamba": (
        {"model_type": "mamba", "state_size": 16, "hidden_size": 30, "num_hidden_layers": 3},
        "state_size: expected layers of attention only, got layers of another kind (mamba)",
    ),
    "linear attention in layer_types": (
        {**LLAMA, "layer_types": ["linear_attention", "linear_attention", "full_attention"]},
        "got 'linear_attention' in layer 0",
    ),
    "linear attention by interval": (
        {**LLAMA, "model_type": "qwen3_next", "full_attention_interval": 4},
        "full_attention_interval: expected layers of attention only, got layers of another kind (linear_attention)",
    ),
    "recurrent blocks": (
        {**LLAMA, "model_type": "recurrent_gemma", "block_types": ["recurrent", "recurrent", "attention"]},
        "block_types: expected layers of attention only, got layers of another kind (recurrent)",
    ),
    "hybrid pattern": (
        {**LLAMA, "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"},
        "got layers of another kind ('M-M*')",
    ),
    "convolutions": ({**LLAMA, "layer_types": ["conv", "full_attention", "conv"]}, "got 'conv' in layer 0"),
    "two lengths of heads": (
        {**LLAMA, "global_head_dim": 512},
        "got layers of different head_dim",
    ),
    "layers of their own shapes": (
        {**LLAMA, "per_layer_config": {"05": {"head_dim": 512}}},
        "per_layer_config: expected layers that all keep the same, got layers of different shapes",
    ),
    "other heads in layers with a window": (
        {**LLAMA, "swa_num_key_value_heads": 8},
        "got layers with different numbers of heads",
    ),
    "values of another length": (
        {**LLAMA, "head_dim": 192, "v_head_dim": 128},
        "v_head_dim: expected head_dim 192, got 128: values of another length than keys",
    ),
    "two caches a layer": (
        {**LLAMA, "model_type": "longcat_flash"},
        "model_type: expected layers that all keep the same, got two caches in each layer",
    ),
    "an index beside the cache": ({**LLAMA, "index_head_dim": 128}, "got a second cache of index keys"),
    "no layers": (
        {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"},
        "num_hidden_layers (or n_layer, n_layers, num_layers): expected a whole number, got nothing",
    ),
    "no width": (
        {key: value for key, value in LLAMA.items() if key != "intermediate_size"},
        "intermediate_size (or n_inner, ffn_dim, ffn_hidden_size, d_ff): expected a whole number, got nothing",
    ),
    "a fraction": ({**LLAMA, "num_key_value_heads": 2.5}, "num_key_value_heads: expected a whole number of at least 0"),
    "a boolean": ({**LLAMA, "hidden_size": True}, "hidden_size: expected a whole number of at least 0, got True"),
    "zero heads": ({**LLAMA, "num_attention_heads": 0}, "num_attention_heads: expected at least 1, got 0"),
    "groups that do not divide": (
        {**LLAMA, "num_key_value_heads": 4},
        "n_heads: expected a multiple of n_kv_heads 4, got 6",
    ),
    "too few kinds of layers": (
        {**LLAMA, "layer_types": ["full_attention"]},
        "layer_types: expected 3 entries, one a layer, got 1",
    ),
    "a window without a size": (
        {**LLAMA, "layer_types": ["sliding_attention"] * 3},
        "sliding_window: expected a size for layers of that kind, got nothing",
    ),
    "experts nobody visits": (
        {**LLAMA, "num_experts": 5},
        "num_experts_per_tok (or num_experts_per_token, moe_top_k, moe_topk, top_k_experts): expected a whole number",
    ),
    "more visits than experts": (
        {**LLAMA, "num_experts": 5, "num_experts_per_tok": 6},
        "active experts: expected 1 to 5, the number of experts, got 6",
    ),
    "a family of latents without its rank": (
        {**LLAMA, "model_type": "deepseek_v3", "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 10},
        "kv_lora_rank: expected a whole number, got nothing: the key is missing",
    ),
    "another family's latent without its rank": (
        {**LLAMA, "model_type": "other", "qk_rope_head_dim": 2},
        "kv_lora_rank: expected a whole number, got nothing: the key is missing",
    ),
    "half a latent": ({**LLAMA, "kv_lora_rank": 4}, "qk_nope_head_dim: expected a whole number, got nothing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(case):
    """Nothing is guessed: the error names the key or the kind of layer, what was expected and what came."""
    config, text = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(text)):
        read_config(config)


def test_a_family_of_latents_may_say_that_it_has_none():
    """DeepSeek-VL2's small models have DeepSeek-V2's type, ordinary attention, and zeros for what MLA would ask."""
    none = {"use_mla": False, "kv_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0}
    assert (
        read_config({**LLAMA, "model_type": "deepseek_v2", **none}).attention == read_config(LLAMA).attention == "MHA"
    )


def test_errors_of_a_file_name_it(tmp_path):
    """A file that is no JSON, no object, or not there is named."""
    broken = tmp_path / "config.json"
    broken.write_text("{")
    with pytest.raises(ValueError, match=re.escape(f"{broken}: expected JSON")):
        read_config(tmp_path)
    broken.write_text("[]")
    with pytest.raises(ValueError, match=re.escape(f"{broken}: expected a JSON object, got list")):
        read_config(broken)
    broken.write_text(json.dumps({**LLAMA, "hidden_size": None}))
    with pytest.raises(ValueError, match=re.escape(f"{broken}: hidden_size (or n_embd, n_embed, d_model)")):
        read_config(broken)
    with pytest.raises(FileNotFoundError):
        read_config(tmp_path / "other.json")
