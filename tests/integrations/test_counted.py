"""Weights as `attnbook.costs` counts them and as transformers builds them, on the meta device: sizes, no numbers."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from attnbook.costs import count_parameters, read_config
from attnbook.costs.families import COUNTED

MISSING = {"deepseek_v2": {"num_experts_per_tok": 2}}
"""What a class's own defaults leave open."""

SWITCHES = [
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 2}),
    ("gpt2", {"n_inner": 1000}),
    ("falcon", {"new_decoder_architecture": True, "num_attention_heads": 64, "hidden_size": 4096, "num_kv_heads": 8}),
    ("falcon", {"bias": True, "multi_query": False, "parallel_attn": False}),
    ("qwen3", {"attention_bias": True, "head_dim": 100}),
    ("qwen2_moe", {"mlp_only_layers": [1, 2], "decoder_sparse_step": 2}),
    ("starcoder2", {"use_bias": False}),
    ("deepseek_v3", {"q_lora_rank": None, "first_k_dense_replace": 1}),
    ("mixtral", {"num_local_experts": 3}),
]


def built(config):
    """The parameters of the class; DeepSeek-V3 keeps its routers' biases, which its files hold too, in buffers."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    biases = [b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
    return sum(x.numel() for x in [*model.parameters(), *biases])


@pytest.mark.parametrize("kind", sorted(COUNTED))
def test_a_family_that_is_counted_has_what_its_class_has(kind):
    """Every model type of `COUNTED`, with the sizes that its class has by itself."""
    config = AutoConfig.for_model(kind, **MISSING.get(kind, {}))
    assert count_parameters(config.to_dict()).total == built(config)


@pytest.mark.parametrize(("kind", "changes"), SWITCHES, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_switches_of_a_family_that_is_counted(kind, changes):
    """Biases, tied embeddings, other heads, experts in some layers: another number, and the class's."""
    config, plain = AutoConfig.for_model(kind, **changes), AutoConfig.for_model(kind)
    total = count_parameters(config.to_dict()).total
    assert total == built(config)
    assert total != count_parameters(read_config(plain.to_dict())).total
