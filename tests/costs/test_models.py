"""The table of published models: every row is whole, found by name, and adds up to the published number of weights."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnbook.costs import count_parameters, kv_cache_bytes, model, names, read_config, weight_bytes
from attnbook.costs.models import TABLE, _windows

CONFIGS = Path(__file__).parent / "configs"

# Numbers of weights, to the last one, as others state them. Every one is also the number of parameters of the class in
# transformers 5.24.0, built from the same sizes without weights; buffers are no weights (see HUB_LLAMA_2).
EXACT = {
    # keras-team/keras-hub, keras_hub/src/models/*/*_presets.py, "params"
    "Llama-3-8B": 8_030_261_248,
    "Mistral-7B-v0.3": 7_248_023_552,
    "mistral-7b-v0.1": 7_241_732_096,
    "Mixtral-8x7B": 46_702_792_704,
    "Gemma-2-2B": 2_614_341_888,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-2-27B": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "bloom-560m": 559_214_592,
    # The hub's count of the published safetensors, as lists in public repositories record it
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Phi-4": 14_659_507_200,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-8B": 8_190_735_360,
    "OLMo-2-7B": 7_298_617_344,
    "OLMo-2-13B": 13_716_198_400,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "phi-2": 2_779_683_840,
    # Counts that public repositories print of the loaded model; Mixtral-8x22B's in one place only
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Mixtral-8x22B": 140_630_071_296,
    "Gemma-3-27B": 27_009_346_304,  # without the vision tower
    "gemma-3-4b": 3_880_263_168,
    "Qwen3-0.6B": 596_049_920,  # its file stores the tied matrix twice: 751_632_384
    "DeepSeek-V3": 671_026_419_200,
    "deepseek-v2-lite": 15_706_484_224,
    "gpt2": 124_439_808,
    "pythia-1.4b": 1_414_647_808,  # EleutherAI's documentation
}
# Stated nowhere that we have read: only the class in transformers 5.24.0, built from the same sizes, has as many.
BUILT = {
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "llama-4-scout": 107_769_861_120,
    "Gemma-3-12B": 11_766_034_176,
}
# The hub's count of Llama 2's files, which hold each layer's rotary frequencies too: half of head_dim numbers.
HUB_LLAMA_2 = {"Llama-2-7B": 6_738_417_664, "Llama-2-13B": 13_015_866_880, "Llama-2-70B": 68_976_653_312}
# The hub's counts of two files with one vision tower (the size of its projection follows d_model: 1152 numbers each).
HUB_GEMMA_3 = {"Gemma-3-4B": 4_300_079_472, "Gemma-3-12B": 12_187_325_040}
# Billions as the makers state them, all and active, to as many digits as they do.
STATED = {
    "Mixtral-8x7B": ("46.7", "12.9"),  # Mistral AI, quoted by others
    "Mixtral-8x22B": ("141", "39"),  # Mistral AI, quoted by others
    "Qwen3-30B-A3B": ("30.5", "3"),  # keras-hub quotes 3.3 from its card; ours is 3.353
    "Qwen3-235B-A22B": ("235", "22"),  # quoted by keras-hub
}
# The same with the input's embedding left out of the active ones.
STATED_WITHOUT_EMBEDDING = {
    # README.md of deepseek-ai/DeepSeek-V3. Its README_WEIGHTS.md has 36.7 with both embeddings: by our count that is
    # 37.6, and 36.6 without the input's.
    "DeepSeek-V3": ("671", "37"),
    "gpt-oss-120b": ("116.83", "5.13"),  # table 1 of the model card (arXiv:2508.10925)
    "gpt-oss-20b": ("20.91", "3.61"),
}


def shape(name):
    return model(name) if name in names() else read_config(CONFIGS / f"{name}.json")


def in_billions(count, like):
    """The count in billions with as many decimals as a text has."""
    return f"{count / 1e9:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize("name", [*EXACT, *BUILT])
def test_weights_add_up_to_the_published_total(name):
    """Projections, biases, norms, embeddings: not one weight is missing."""
    assert count_parameters(shape(name)).total == {**EXACT, **BUILT}[name]


@pytest.mark.parametrize("name", HUB_LLAMA_2)
def test_what_a_file_holds_beside_the_weights(name):
    """Llama 2's files have rotary frequencies too, layer by layer; a model's weights are the rest."""
    found = model(name)
    assert count_parameters(found).total + found.layers * found.head_dim // 2 == HUB_LLAMA_2[name]


def test_the_rows_of_gemma_3s_embedding():
    """Two published files differ in their language parts and in the projection of one vision tower, in nothing else."""
    small, large = HUB_GEMMA_3
    rest = [total - count_parameters(name).total for name, total in HUB_GEMMA_3.items()]
    assert rest[1] - rest[0] == 1152 * (model(large).d_model - model(small).d_model)


@pytest.mark.parametrize("name", [*STATED, *STATED_WITHOUT_EMBEDDING])
def test_all_and_active_weights_are_those_stated(name):
    """In billions, at the precision of the statement; some makers leave the input's embedding out of the active."""
    got = count_parameters(shape(name))
    total, active = {**STATED, **STATED_WITHOUT_EMBEDDING}[name]
    left_out = got.embedding if name in STATED_WITHOUT_EMBEDDING else 0
    assert in_billions(got.total, total) == total
    assert in_billions(got.active - left_out, active) == active


@pytest.mark.parametrize(
    ("name", "mlp", "attention"), [("gpt-oss-120b", "114.71", "0.96"), ("gpt-oss-20b", "19.12", "0.64")]
)
def test_parts_are_those_of_the_model_card(name, mlp, attention):
    """Table 1 of the card of gpt-oss, in billions: experts with their router, attention, and both embeddings."""
    got = count_parameters(shape(name))
    assert in_billions(got.feed_forward + got.router, mlp) == mlp
    assert in_billions(got.attention, attention) == attention
    assert in_billions(got.embedding + got.unembedding, "1.16") == "1.16"


def test_parts_by_hand():
    """A small model written out: embedding twice, two layers, a shared and two of three experts for each token."""
    config = {
        "model_type": "qwen2_moe",
        "hidden_size": 10,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 17,
        "vocab_size": 13,
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 7,
        "shared_expert_intermediate_size": 11,
        "mlp_only_layers": [0],
    }
    got = count_parameters(config)
    assert got.embedding == got.unembedding == 13 * 10
    assert got.attention == 2 * (10 * 10 + 2 * 10 * 5 + 10 * 10 + (10 + 5 + 5))
    assert got.feed_forward == 3 * 10 * 17 + 3 * 3 * 10 * 7 + 3 * 10 * 11
    assert got.router == 3 * 10 + 10
    assert got.norms == 2 * 2 * 10 + 10
    assert got.idle == 3 * 10 * 7
    assert got.total - got.active == got.idle


def test_parts_of_latent_attention_by_hand():
    """MLA: queries through a latent of their own, keys and values through another, a norm on each latent."""
    config = {
        "model_type": "deepseek_v3",
        "hidden_size": 10,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 7,
        "vocab_size": 13,
        "kv_lora_rank": 5,
        "q_lora_rank": 6,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 2,
        "v_head_dim": 3,
    }
    got = count_parameters(config)
    assert got.attention == 3 * (10 * 6 + 6 * 2 * (4 + 2) + 10 * (5 + 2) + 5 * 2 * (4 + 3) + 2 * 3 * 10)
    assert got.norms == 3 * (2 * 10 + 6 + 5) + 10
    straight = count_parameters({**config, "q_lora_rank": None})
    assert straight.attention == 3 * (10 * 2 * (4 + 2) + 10 * (5 + 2) + 5 * 2 * (4 + 3) + 2 * 3 * 10)
    assert straight.norms == 3 * (2 * 10 + 5) + 10


def test_biases_and_sinks_by_hand():
    """gpt-oss: a sink a head, biases on the projections, on the router and inside the experts."""
    config = {
        "model_type": "gpt_oss",
        "hidden_size": 10,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 3,
        "intermediate_size": 7,
        "vocab_size": 13,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "attention_bias": True,
    }
    got = count_parameters(config)
    assert got.attention == 2 * (10 * 12 + 2 * 10 * 6 + 12 * 10 + (12 + 6 + 6) + 10 + 4)
    assert got.router == 2 * (5 * 10 + 5)
    assert got.feed_forward == 2 * 5 * (3 * 10 * 7 + 7 + 7 + 10)


SMALL = {
    "hidden_size": 10,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 7,
    "vocab_size": 13,
    "max_position_embeddings": 19,
}


@pytest.mark.parametrize(
    ("kind", "switch", "more"),
    [
        ("llama", {"attention_bias": True}, 3 * 4 * 10),
        ("llama", {"mlp_bias": True}, 3 * (7 + 7 + 10)),
        ("llama", {"tie_word_embeddings": True}, -13 * 10),
        ("qwen2_moe", {"qkv_bias": False}, -3 * 3 * 10),
        ("gpt_neox", {"attention_bias": False}, -3 * 4 * 10),
        ("falcon", {"bias": True}, 3 * (10 + 2 * 5 + 10 + 7 + 10)),
        ("falcon", {"multi_query": False}, 3 * 10 * 10),
        ("falcon", {"parallel_attn": False}, 3 * 2 * 10),
    ],
)
def test_switches_of_the_weights(kind, switch, more):
    """Biases, ties and heads that a config switches on or off: so many weights more or fewer, by hand."""
    config = {**SMALL, "model_type": kind}
    assert count_parameters({**config, **switch}).total - count_parameters(config).total == more


@pytest.mark.parametrize(
    ("kind", "mlp", "norms"),
    [
        ("gptj", 2 * 70 + 7 + 10, 3 * 20 + 20),  # biases in the feed-forward part alone, one LayerNorm a layer
        ("gpt_neox", 2 * 70 + 7 + 10, 3 * 40 + 20),
        ("mpt", 2 * 70, 3 * 20 + 10),  # LayerNorms without a bias
        ("cohere", 3 * 70, 3 * 10 + 10),  # one norm a layer, without a bias
        ("exaone4", 3 * 70, 3 * (20 + 2 * 5) + 10),  # norms on queries and keys
        ("gemma2", 3 * 70, 3 * 40 + 10),
    ],
)
def test_what_a_family_always_has(kind, mlp, norms):
    """Biases and norms that no key of a config says, part by part."""
    got = count_parameters({**SMALL, "model_type": kind, "head_dim": 5})
    assert (got.feed_forward, got.norms) == (3 * mlp, norms)


def test_a_row_whose_local_layers_do_not_fit_its_period_is_refused():
    """The two ways in which the table says how many layers have a window are checked against each other."""
    with pytest.raises(ValueError, match="m: local_layers: expected 3, as local_period 2 has it, got 2"):
        _windows("m", 5, 7, 2, 2)
    assert _windows("m", 5, 7, 2, 3) == (7, None, 7, None, 7)


def test_weights_that_no_size_stands_for_are_not_guessed():
    """Gemma-3n has embeddings a layer and more: its cache is counted, its weights are refused."""
    with pytest.raises(ValueError, match="got embeddings a layer, AltUp and LAuReL, whose weights are not counted"):
        count_parameters(read_config(CONFIGS / "gemma-3n-e4b.json"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model_type": "stablelm"}, "got model_type 'stablelm', whose class was not compared with our count"),
        ({"model_type": ""}, "got model_type '', whose class was not compared with our count"),
        ({"model_type": "phi", "qk_layernorm": True}, "got qk_layernorm, with weights that are not counted for phi"),
        (
            {"model_type": "helium", "attention_bias": True},
            "got attention_bias, with weights that are not counted for helium",
        ),
    ],
)
def test_weights_of_classes_that_were_not_compared_are_refused(change, text):
    """The cache of such a config is counted, for keys have one meaning; its weights are not guessed."""
    config = {**SMALL, **change}
    assert kv_cache_bytes(config, tokens=11) == 3 * 2 * 10 * 11 * 2
    with pytest.raises(ValueError, match=re.escape(text)):
        count_parameters(config)


def test_bytes_of_weights():
    """Two bytes each in bfloat16, half a byte in int4, rounded up."""
    assert weight_bytes("Llama-3-8B") == 2 * EXACT["Llama-3.1-8B"]
    assert weight_bytes("Llama-3-8B", dtype="int4") == EXACT["Llama-3.1-8B"] // 2


@pytest.mark.parametrize("name", names())
def test_a_row_is_whole(name):
    """Every model says in which file its sizes were read, and of which version."""
    found = model(name)
    assert found.source
    assert found.name == name
    assert len(found.windows) == found.layers
    assert re.search(r"\.py\b", found.source)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Llama-3.1-70B", "llama-3.1-70b"),
        ("Gemma-2-9B", "gemma-2-9b"),
        ("Gemma-3-4B", "gemma-3-4b"),
        ("Qwen2.5-7B", "qwen2.5-7b"),
        ("Mistral-7B-v0.3", "mistral-7b-v0.3"),
        ("Mixtral-8x7B", "mixtral-8x7b"),
        ("Qwen3-30B-A3B", "qwen3-30b-a3b"),
    ],
)
def test_the_table_and_the_config_agree(name, config):
    """Read from the table and from a config with the keys of its family, the same model has the same shape."""
    from_table, from_config = model(name), read_config(CONFIGS / f"{config}.json")
    for field in ("layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "windows", "experts", "tied", "vocab"):
        assert getattr(from_table, field) == getattr(from_config, field), field
    assert count_parameters(from_table) == count_parameters(from_config)


def test_an_unknown_name_gets_near_ones():
    """A misspelt name is answered with the likely ones, a strange one with where to look."""
    with pytest.raises(ValueError, match=r"got 'Llama-3\.1-80B': did you mean .*Llama-3\.1-8B"):
        model("Llama-3.1-80B")
    with pytest.raises(ValueError, match=r"got '🦙': attnbook\.costs\.models\.names\(\) lists them"):
        model("🦙")


def test_the_table_lies_in_the_package():
    """The data file is part of what is installed: it lies beside the code that reads it."""
    import attnbook

    assert TABLE.is_relative_to(Path(attnbook.__file__).parent)


def test_importing_costs_loads_nothing_heavy():
    """Neither torch nor NumPy, and not even the modules that read a table or a config."""
    heavy = ("torch", "numpy", "csv", "json", "difflib")
    program = f"import attnbook.costs, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
