"""The table of published models: every row is whole, found by name, and adds up to the published number of weights."""

import subprocess
import sys
from pathlib import Path

import pytest

from attnbook.costs import count_parameters, model, names, read_config, weight_bytes
from attnbook.costs.models import TABLE, _windows

CONFIGS = Path(__file__).parent / "configs"

# Weights of the published checkpoints (safetensors' own count), to the last one.
EXACT = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Mixtral-8x7B": 46_702_792_704,
    "Gemma-2-2B": 2_614_341_888,
    "Gemma-2-9B": 9_241_705_984,
    "Phi-4": 14_659_507_200,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-8B": 8_190_735_360,
    "bloom-560m": 559_214_592,
    "deepseek-v2-lite": 15_706_484_224,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-3-1b": 999_885_952,
    "gpt2": 124_439_808,
    "mistral-7b-v0.1": 7_241_732_096,
    "phi-2": 2_779_683_840,
    "pythia-1.4b": 1_414_647_808,
}
# Billions as the makers state them, all and active, to as many digits as they do.
STATED = {
    "Mixtral-8x7B": ("46.7", "12.9"),
    "Mixtral-8x22B": ("141", "39"),
    "Qwen3-30B-A3B": ("30.5", "3"),  # its card says 3.3; ours is 3.353 with both embeddings
    "Qwen3-235B-A22B": ("235", "22"),
    "DeepSeek-V3": ("671", "38"),  # stated as 37, which is without the input's embedding: tested below
    "Llama-2-70B": ("69", "69"),
    "Gemma-3-27B": ("27", "27"),
    "OLMo-2-13B": ("14", "14"),
}


def shape(name):
    return model(name) if name in names() else read_config(CONFIGS / f"{name}.json")


@pytest.mark.parametrize("name", EXACT)
def test_weights_add_up_to_the_published_checkpoint(name):
    """Projections, biases, norms, embeddings: not one weight is missing."""
    assert count_parameters(shape(name)).total == EXACT[name]


@pytest.mark.parametrize("name", STATED)
def test_all_and_active_weights_are_those_stated(name):
    """In billions, at the precision of the statement."""
    got = count_parameters(name)
    total, active = STATED[name]
    for count, text in ((got.total, total), (got.active, active)):
        assert f"{count / 1e9:.{len(text.partition('.')[2])}f}" == text


def test_active_weights_without_the_input_embedding():
    """DeepSeek-V3's 37 billion and gpt-oss's 5.13 of 116.83 leave the input's embedding out, Mixtral's do not."""
    for name, text in (("DeepSeek-V3", "37"), ("gpt-oss-120b", "5.13")):
        got = count_parameters(name)
        assert f"{(got.active - got.embedding) / 1e9:.{len(text.partition('.')[2])}f}" == text
    card = count_parameters("gpt-oss-120b")
    assert [f"{count / 1e9:.2f}" for count in (card.total, card.feed_forward + card.router, card.attention)] == [
        "116.83",
        "114.71",
        "0.96",
    ]


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


def test_a_row_whose_local_layers_do_not_fit_its_period_is_refused():
    """The two ways in which the table says how many layers have a window are checked against each other."""
    with pytest.raises(ValueError, match="m: local_layers: expected 3, as local_period 2 has it, got 2"):
        _windows("m", 5, 7, 2, 2)
    assert _windows("m", 5, 7, 2, 3) == (7, None, 7, None, 7)


def test_weights_that_no_size_stands_for_are_not_guessed():
    """Gemma-3n has embeddings a layer and more: its cache is counted, its weights are refused."""
    with pytest.raises(ValueError, match="got embeddings a layer, AltUp and LAuReL, whose weights are not counted"):
        count_parameters(read_config(CONFIGS / "gemma-3n-e4b.json"))


def test_bytes_of_weights():
    """Two bytes each in bfloat16, half a byte in int4, rounded up."""
    assert weight_bytes("Llama-3-8B") == 2 * EXACT["Llama-3.1-8B"]
    assert weight_bytes("Llama-3-8B", dtype="int4") == EXACT["Llama-3.1-8B"] // 2


@pytest.mark.parametrize("name", names())
def test_a_row_is_whole(name):
    """Every model says where it comes from, and what its table and its config say of the same model agrees."""
    found = model(name)
    assert found.source
    assert found.name == name
    assert len(found.windows) == found.layers
    assert "verify" not in found.source


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Llama-3.1-70B", "llama-3.1-70b"),
        ("Gemma-2-9B", "gemma-2-9b"),
        ("Qwen2.5-7B", "qwen2.5-7b"),
        ("Mistral-7B-v0.3", "mistral-7b-v0.3"),
        ("Mixtral-8x7B", "mixtral-8x7b"),
        ("Qwen3-30B-A3B", "qwen3-30b-a3b"),
    ],
)
def test_the_table_and_the_config_agree(name, config):
    """Read from litgpt's table and from the published config, the same model has the same shape."""
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
