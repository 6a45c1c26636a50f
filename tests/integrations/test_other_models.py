"""Attention that is not one causal text a row: packed texts, chunks, encoders, cross-attention, learned biases."""

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    Llama4ForCausalLM,
    Llama4TextConfig,
    T5Config,
    T5ForConditionalGeneration,
)

import attnbook.api
from tests.integrations.small_models import WINDOW, in_float64, model, padded, tokens
from tests.tolerance import as_float64, assert_refuses, assert_right


@pytest.fixture
def packed_calls(monkeypatch):
    """The cumulative lengths and options of every call of `attnbook.attention_varlen`."""
    found, attention_varlen = [], attnbook.api.attention_varlen

    def spy(q, k, v, cu_seqlens_q, cu_seqlens_k, **options):
        found.append({"cu_seqlens": cu_seqlens_q.tolist(), **options})
        return attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **options)

    monkeypatch.setattr(attnbook.api, "attention_varlen", spy)
    return found


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_packed_texts_do_not_see_one_another(family, packed_calls):
    """Positions that begin again pack several texts into a row; each gives the logits that it gives alone."""
    lengths = [[7, 11, 1, 4], [13, 10]]
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    ids = tokens(2, 23)
    with torch.no_grad():
        with in_float64():
            exact = model(family, "eager")(ids, position_ids=positions, use_cache=False).logits
        plain = model(family, "eager", torch.float32)(ids, position_ids=positions, use_cache=False).logits
        ours = model(family, "attnbook")
        out = ours(ids, position_ids=positions, use_cache=False).logits
        assert_right(out, as_float64(exact), plain)
        assert_right(out[0, 7:18], as_float64(ours(ids[:1, 7:18]).logits[0]), plain[0, 7:18])
        assert_refuses({"one text": ours(ids, use_cache=False).logits}, as_float64(exact), plain)
    assert [call["cu_seqlens"] for call in packed_calls] == [[0, 7, 18, 19, 23, 36, 46]] * 2
    windows = {"llama": [None, None], "mistral": [WINDOW, WINDOW]}.get(family, [WINDOW, None])
    assert [call["window"] for call in packed_calls] == windows


def test_packed_lengths_separate_where_the_model_tells_its_mask_nothing(packed_calls):
    """gpt-oss (5.24) passes no positions on to its masks, so packed texts see one another; their lengths say better."""
    lengths = torch.tensor([0, 7, 23], dtype=torch.int32)
    positions = torch.cat([torch.arange(7), torch.arange(16)])[None]
    ids = tokens(1, 23)
    options = {"position_ids": positions, "use_cache": False, "cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths}
    with torch.no_grad():
        with in_float64():
            exact = model("gpt_oss", "eager")(ids[:, 7:], use_cache=False).logits
            mixed = model("gpt_oss", "eager")(ids, **options).logits[:, 7:]
        plain = model("gpt_oss", "eager", torch.float32)(ids[:, 7:], use_cache=False).logits
        ours = model("gpt_oss", "attnbook")
        assert_right(ours(ids, **options).logits[:, 7:], as_float64(exact), plain)
        assert_refuses({"eager": mixed}, as_float64(exact), plain)
    assert [(call["cu_seqlens"], call["window"]) for call in packed_calls] == [([0, 7, 23], WINDOW), ([0, 7, 23], None)]


def test_packed_lengths_beside_padding_or_a_cache_are_refused():
    """They contradict each other."""
    lengths = torch.tensor([0, 7, 23], dtype=torch.int32)
    made = model("llama", "attnbook")
    with pytest.raises(
        ValueError, match=r"^cu_seq_lens_q has 2 sequences in a batch of 4, beside padding or a cache: "
    ):
        made(tokens(4, 23), cu_seq_lens_q=lengths, attention_mask=padded(4, 23, "left"))
    with pytest.raises(ValueError, match="packed sequences have neither; pass no attention_mask, and use_cache=False"):
        made.generate(tokens(1, 23), max_new_tokens=2, eos_token_id=None, cu_seq_lens_q=lengths)


def test_packed_lengths_with_positions_agree():
    """With both, as a collator gives them, the positions have said it already."""
    lengths = torch.tensor([0, 7, 23], dtype=torch.int32)
    positions = torch.cat([torch.arange(7), torch.arange(16)])[None]
    made, ids = model("llama", "attnbook"), tokens(1, 23)
    with_both = made(ids, position_ids=positions, use_cache=False, cu_seq_lens_q=lengths, cu_seq_lens_k=lengths)
    assert torch.equal(with_both.logits, made(ids, position_ids=positions, use_cache=False).logits)


def three(make, run, mask):
    """Results of eager in float64, eager in float32, ours in float64, and ours where padding is forgotten."""
    results = []
    for implementation, dtype in (
        ("eager", torch.float64), ("eager", torch.float32), ("attnbook", torch.float64),
        ("forgets-padding", torch.float64),
    ):  # fmt: skip
        torch.manual_seed(3)
        made = make(implementation).to(dtype).eval()
        with torch.no_grad(), in_float64():
            results.append(run(made, mask))
    return results


@pytest.mark.parametrize("side", ["left", "right"])
def test_chunked_attention(side):
    """Llama-4: a token sees the past of its own chunk of 7 only; the next layer sees all of it."""

    def make(implementation):
        return Llama4ForCausalLM._from_config(
            Llama4TextConfig(
                vocab_size=97, hidden_size=42, intermediate_size=43, intermediate_size_mlp=43, num_hidden_layers=2,
                num_attention_heads=6, num_key_value_heads=2, head_dim=14, num_local_experts=1,
                interleave_moe_layer_step=2, attention_chunk_size=7, initializer_range=0.3, pad_token_id=0,
                layer_types=["chunked_attention", "full_attention"], attn_implementation=implementation,
                experts_implementation="eager",
            ),
            attn_implementation=implementation,
        )  # fmt: skip

    mask = padded(3, 23, side)
    keep = mask.bool()
    exact, plain, out, wrong = three(make, lambda made, mask: made(tokens(3, 23), attention_mask=mask).logits, mask)
    assert_right(out[keep], as_float64(exact[keep]), plain[keep])
    if side == "left":
        assert_refuses({"padding forgotten": wrong[keep]}, as_float64(exact[keep]), plain[keep])


ENCODER = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 42, "intermediate_size": 43}


def test_an_encoder_sees_both_ways():
    """BERT: every token sees every other one that is no padding."""

    def make(implementation):
        config = BertConfig(vocab_size=97, max_position_embeddings=31, initializer_range=0.3, **ENCODER)
        return BertModel._from_config(config, attn_implementation=implementation)

    def run(made, mask):
        return made(tokens(3, 23), attention_mask=mask).last_hidden_state

    for mask in (padded(3, 23, "right"), padded(3, 23, "left")):
        keep = mask.bool()
        exact, plain, out, wrong = three(make, run, mask)
        assert_right(out[keep], as_float64(exact[keep]), plain[keep])
        assert_refuses({"padding forgotten": wrong[keep]}, as_float64(exact[keep]), plain[keep])
    exact, plain, out, _ = three(make, run, None)
    assert_right(out, as_float64(exact), plain)


def bart(implementation):
    return BartForConditionalGeneration._from_config(
        BartConfig(
            vocab_size=97, d_model=42, encoder_layers=1, decoder_layers=1, encoder_attention_heads=3,
            decoder_attention_heads=3, encoder_ffn_dim=43, decoder_ffn_dim=43, max_position_embeddings=31,
            init_std=0.3, pad_token_id=0, bos_token_id=1, eos_token_id=2, forced_eos_token_id=None,
        ),
        attn_implementation=implementation,
    )  # fmt: skip


def t5(implementation):
    made = T5ForConditionalGeneration._from_config(
        T5Config(
            vocab_size=97, d_model=42, d_kv=14, d_ff=43, num_layers=2, num_heads=3, initializer_factor=1.0,
            relative_attention_num_buckets=8, pad_token_id=0, eos_token_id=2, decoder_start_token_id=1,
        ),
        attn_implementation=implementation,
    )  # fmt: skip
    for name, weight in made.named_parameters():
        if "relative_attention_bias" in name:
            torch.nn.init.normal_(weight, std=2.0)
    return made


@pytest.mark.parametrize("make", [bart, t5])
def test_encoder_and_decoder(make):
    """Cross-attention to a padded text; T5's learned bias for the distance, in its encoder and its decoder."""

    def run(made, mask):
        return made(tokens(3, 23), attention_mask=mask, decoder_input_ids=tokens(3, 11, seed=7)).logits

    mask = padded(3, 23, "right")
    exact, plain, out, wrong = three(make, run, mask)
    assert_right(out, as_float64(exact), plain)
    assert_refuses({"padding forgotten": wrong}, as_float64(exact), plain)


@pytest.mark.parametrize("make", [bart, t5])
def test_encoder_and_decoder_write_the_same_text(make):
    """Greedy, with the cache of both attentions."""
    texts = []
    for implementation in ("eager", "attnbook"):
        torch.manual_seed(3)
        made = make(implementation).double().eval()
        with in_float64():
            texts.append(
                made.generate(
                    tokens(3, 23),
                    attention_mask=padded(3, 23, "left"),
                    max_new_tokens=7,
                    do_sample=False,
                    num_beams=1,
                    eos_token_id=None,
                )
            )
    assert torch.equal(*texts)


def test_a_learned_bias_has_its_gradient():
    """T5's bias is trained through our attention as through eager."""
    gradients = []
    for implementation, dtype in (
        ("eager", torch.float64), ("eager", torch.float32), ("attnbook", torch.float64),
    ):  # fmt: skip
        torch.manual_seed(3)
        made = t5(implementation).to(dtype).eval()
        with in_float64():
            out = made(tokens(2, 13), attention_mask=padded(2, 13, "right"), decoder_input_ids=tokens(2, 11, seed=7))
        (out.logits**2).sum().backward()
        gradients.append(made.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad)
    exact, plain, ours = gradients
    assert exact.abs().min() > 0 or exact.abs().max() > 0
    assert_right(ours, as_float64(exact), plain)
