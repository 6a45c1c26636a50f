"""Operations of a whole model: part by part by hand, as torch counts them, and errors that name the part."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnbook.costs import model, model_flops, read_config
from attnbook.models.transformer import Transformer
from attnbook.reference import attention
from tests.costs.test_models import CONFIGS, SMALL

LLAMA = {**SMALL, "model_type": "llama"}


def test_parts_by_hand():
    """Three layers of two heads of 5 numbers and a gated part of width 7, for 11 tokens."""
    got = model_flops(LLAMA, 11)
    assert got.projections == 3 * 2 * 11 * 4 * 10 * 10
    assert got.attention == 3 * 2 * 11 * 11 * 2 * (5 + 5)
    assert got.feed_forward == 3 * 2 * 11 * 3 * 10 * 7
    assert got.unembedding == 2 * 11 * 13 * 10
    assert got.total == got.projections + got.attention + got.feed_forward + got.unembedding
    assert got.layers[0].total * 3 + got.unembedding == got.total


def test_twice_the_length_is_four_times_the_attention_alone():
    """Everything else doubles."""
    short, long = model_flops("Llama-3.1-8B", 4096), model_flops("Llama-3.1-8B", 8192)
    assert long.attention == 4 * short.attention
    for part in ("projections", "feed_forward", "unembedding"):
        assert getattr(long, part) == 2 * getattr(short, part)


def test_pairs_that_are_hidden_are_left_out_on_request():
    """Causal: a triangle; a layer with a window of 2: a band; without is_causal the whole square in both."""
    config = {**LLAMA, "model_type": "gemma2", "head_dim": 5, "sliding_window": 2}
    assert [layer.attention for layer in model_flops(config, 4).layers] == [16 * 2 * 20] * 3
    assert [layer.attention for layer in model_flops(config, 4, is_causal=True).layers] == [7 * 40, 10 * 40, 7 * 40]


def test_one_token_after_many():
    """A query against a cache: pairs with every key, everything else once."""
    prompt, last = model_flops(LLAMA, 10, is_causal=True), model_flops(LLAMA, 1, 11, is_causal=True)
    whole = model_flops(LLAMA, 11, is_causal=True)
    assert last.attention == 3 * 2 * 11 * 2 * (5 + 5)
    assert prompt.total + last.total == whole.total


def test_a_token_uses_its_own_experts_the_shared_ones_and_the_router():
    """Two of eight experts of Mixtral; in Qwen2-MoE a dense layer, a shared expert and its gate."""
    shape = model("Mixtral-8x7B")
    assert model_flops(shape, 1).feed_forward == 32 * 2 * 4096 * (2 * 3 * 14336 + 8)
    config = {
        **SMALL,
        "model_type": "qwen2_moe",
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 4,
        "shared_expert_intermediate_size": 11,
        "mlp_only_layers": [0],
    }
    dense, *sparse = (layer.feed_forward for layer in model_flops(config, 1).layers)
    assert dense == 2 * 3 * 10 * 7
    assert sparse == [2 * 10 * (3 * (2 * 4 + 11) + 3 + 1)] * 2


def test_as_torch_counts_them():
    """A real model with grouped heads and a gated part, run: every product, and none too many."""
    small = Transformer(
        13, d_model=12, n_layers=2, n_heads=4, n_kv_heads=2, activation="swiglu", d_ff=17, positions="none"
    )
    tokens = torch.zeros(1, 9, dtype=torch.long)
    for block in small.blocks:
        block.attention.attend = attention
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        small(tokens)
    config = {
        **{"model_type": "llama", "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "intermediate_size": 17, "vocab_size": 13},
    }
    assert model_flops(config, 9).total == counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deepseek-v2-lite", r"got latent attention \(MLA\)"),
        ("gemma-3n-e4b", "got embeddings a layer"),
        ("llama-4-scout", "got attention in chunks"),
    ],
)
def test_parts_of_another_kind_are_refused(name, text):
    """Not guessed: the error says which part it is."""
    with pytest.raises(ValueError, match=f"expected a model whose operations follow from its shape, {text}"):
        model_flops(read_config(CONFIGS / f"{name}.json"), 7, is_causal=True)


def test_sizes_below_zero_are_named():
    """As everywhere in the costs."""
    with pytest.raises(ValueError, match="t_kv: expected at least 0, got -1"):
        model_flops(LLAMA, 1, -1)
