"""The KV cache in bytes: formulas written out for every way of sharing, lengths and dtypes, layer by layer."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from attnbook.costs import kv_cache_bytes, kv_cache_layers, model, read_config
from attnbook.costs.models import find_shape

CONFIGS = Path(__file__).parent / "configs"


def test_llama_70b_at_a_long_context():
    """80 layers, keys and values, 8 heads of 128, 32768 tokens, 24 requests, two bytes each: 240 GiB."""
    got = kv_cache_bytes("Llama-3.1-70B", tokens=32768, requests=24, dtype="bfloat16")
    assert got == 80 * 2 * 8 * 128 * 32768 * 24 * 2
    assert got == 240 * 2**30


@pytest.mark.parametrize(("n_kv_heads", "kind"), [(6, "MHA"), (2, "GQA"), (1, "MQA")])
def test_heads_that_share(n_kv_heads, kind):
    """The cache is proportional to the heads that keep keys and values; the name of the sharing follows."""
    shape = find_shape(tiny(num_key_value_heads=n_kv_heads))
    assert shape.attention == kind
    assert kv_cache_bytes(shape, tokens=13, dtype="float32") == 3 * 2 * n_kv_heads * 5 * 13 * 4


def test_latent_attention_caches_one_short_vector():
    """DeepSeek-V3 keeps 512 + 64 numbers a token and layer, whatever its 128 heads."""
    assert kv_cache_bytes("DeepSeek-V3", tokens=1000) == 61 * (512 + 64) * 1000 * 2
    assert {layer.kind for layer in kv_cache_layers("DeepSeek-V3", tokens=3)} == {"latent"}


def test_a_window_keeps_at_most_its_tokens():
    """Gemma-3-27B: 52 layers of 1024 tokens and 10 of all; below the window nothing is saved."""
    a_token = 2 * 16 * 128 * 2
    assert kv_cache_bytes("Gemma-3-27B", tokens=131072) == (52 * 1024 + 10 * 131072) * a_token
    assert kv_cache_bytes("Gemma-3-27B", tokens=1024) == 62 * 1024 * a_token
    assert kv_cache_bytes("Gemma-3-27B", tokens=1025) == (52 * 1024 + 10 * 1025) * a_token


def test_layers_add_up_and_say_what_they_keep():
    """The breakdown of gpt-oss: every other layer has a window, beginning with the first; its sum is the total."""
    layers = kv_cache_layers("gpt-oss-120b", tokens=1000, requests=3)
    assert [layer.kind for layer in layers[:4]] == ["window", "full", "window", "full"]
    assert [layer.tokens for layer in layers[:2]] == [3 * 128, 3 * 1000]
    assert layers[1].elements == 3000 * 2 * 8 * 64
    assert sum(layer.bytes for layer in layers) == kv_cache_bytes("gpt-oss-120b", tokens=1000, requests=3)


def test_layers_that_share_a_cache_keep_none():
    """Gemma-3n: the last 15 of 35 layers read what earlier ones keep; of the first 20, four see everything."""
    shape = read_config(CONFIGS / "gemma-3n-e4b.json")
    layers = kv_cache_layers(shape, tokens=4096)
    assert [layer.kind for layer in layers[20:]] == ["shared"] * 15
    assert {layer.bytes for layer in layers[20:]} == {0}
    assert kv_cache_bytes(shape, tokens=4096) == (16 * 512 + 4 * 4096) * 2 * 2 * 256 * 2


def test_chunks_are_counted_as_the_room_they_need():
    """Llama 4: three of four layers keep at most a chunk of 8192 tokens."""
    shape = read_config(CONFIGS / "llama-4-scout.json")
    layers = kv_cache_layers(shape, tokens=100_000)
    assert [layer.kind for layer in layers[:4]] == ["chunk", "chunk", "chunk", "full"]
    assert kv_cache_bytes(shape, tokens=100_000) == (36 * 8192 + 12 * 100_000) * 2 * 8 * 128 * 2


def test_requests_of_different_lengths():
    """A sequence of lengths equals the sum of single requests, windows included; as many equal ones equal requests=."""
    lengths = [7, 5000, 0, 130]
    single = sum(kv_cache_bytes("Gemma-2-2B", tokens=length) for length in lengths)
    assert kv_cache_bytes("Gemma-2-2B", tokens=lengths) == single
    assert kv_cache_bytes("Gemma-2-2B", tokens=[31, 31, 31]) == kv_cache_bytes("Gemma-2-2B", tokens=31, requests=3)
    assert kv_cache_bytes("Gemma-2-2B", tokens=[]) == 0


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("float64", 64),
        ("float32", 32),
        ("bfloat16", 16),
        ("float16", 16),
        ("fp8", 8),
        ("float8_e4m3fn", 8),
        ("int8", 8),
        ("int4", 4),
        ("torch.float16", 16),
        ("BF16", 16),
    ],
)
def test_dtypes(dtype, bits):
    """Each type takes its bits; two numbers of four bits share a byte."""
    assert kv_cache_bytes("Llama-3-8B", tokens=11, dtype=dtype) == 32 * 2 * 8 * 128 * 11 * bits // 8


def test_half_bytes_round_up_once_a_layer():
    """Three layers of 2 · 5 · 1 numbers of four bits, an odd count made by one latent number: 2 bytes each, not 1.5."""
    shape = find_shape(tiny(kv_lora_rank=2, qk_rope_head_dim=1, qk_nope_head_dim=4, v_head_dim=5))
    assert kv_cache_bytes(shape, tokens=1, dtype="int4") == 3 * 2
    assert kv_cache_bytes(shape, tokens=2, dtype="int4") == 3 * 3


def test_models_are_taken_in_every_form(tmp_path):
    """A name, a shape, a dictionary, a file, a folder, and an object with to_dict() give one number."""

    class Config:
        def to_dict(self):
            return tiny()

    (tmp_path / "config.json").write_text(
        '{"hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 6, '
        '"intermediate_size": 7, "vocab_size": 11, "model_type": "llama"}'
    )
    expected = 3 * 2 * 6 * 5 * 13 * 2
    for given in (tiny(), find_shape(tiny()), Config(), tmp_path, tmp_path / "config.json", str(tmp_path)):
        assert kv_cache_bytes(given, tokens=13) == expected
    assert kv_cache_bytes("llama-3-8b", tokens=5) == kv_cache_bytes(model("Llama-3-8B"), tokens=5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"tokens": -1}, "tokens: expected at least 0, got -1"),
        ({"tokens": [3, -2]}, "tokens[1]: expected at least 0, got -2"),
        ({"tokens": 1e3}, "tokens: expected a whole number of at least 0, got 1000.0"),
        ({"tokens": "1000"}, "tokens: expected a whole number of at least 0, got '1000'"),
        ({"tokens": None}, "tokens: expected a whole number of at least 0, got None"),
        ({"tokens": True}, "tokens: expected a whole number of at least 0, got True"),
        ({"tokens": [3, 2.5]}, "tokens[1]: expected a whole number of at least 0, got 2.5"),
        ({"tokens": 3, "requests": 2.5}, "requests: expected a whole number of at least 0, got 2.5"),
        ({"tokens": 3, "requests": True}, "requests: expected a whole number of at least 0, got True"),
        ({"tokens": 3, "requests": -1}, "requests: expected at least 0, got -1"),
        (
            {"tokens": [3, 4], "requests": 2},
            "requests: expected 1, because tokens has one length for each of 2 requests, got 2",
        ),
    ],
)
def test_wrong_counts_are_named(arguments, text):
    """Counts that are no whole numbers, and lengths together with a number of requests, are refused."""
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        kv_cache_bytes("Llama-3-8B", **arguments)


def test_counts_of_numpy_are_whole_numbers():
    """One number or many; the bytes are Python's, and so cannot overflow."""
    many = np.array([3, 5], dtype=np.int32)
    assert kv_cache_bytes("Llama-3-8B", tokens=many) == kv_cache_bytes("Llama-3-8B", tokens=[3, 5])
    large = kv_cache_bytes("Llama-3-8B", tokens=np.int32(2**20), requests=np.int32(2**10))
    assert large == kv_cache_bytes("Llama-3-8B", tokens=2**20, requests=2**10)
    assert type(large) is int


def test_an_unknown_dtype_lists_the_known():
    """The error says what there is."""
    with pytest.raises(ValueError, match=r"dtype: expected one of float64, .*int4, uint4, got 'int3'"):
        kv_cache_bytes("Llama-3-8B", tokens=1, dtype="int3")


def test_something_that_is_no_model_is_a_type_error():
    """An argument of another kind is refused by its type."""
    with pytest.raises(TypeError, match=r"model_or_config: expected a name, .*, got int"):
        kv_cache_bytes(7, tokens=1)


def test_a_shape_that_does_not_fit_itself_is_refused():
    """Sizes of a shape are checked against one another, each by its name."""
    shape = model("Llama-3-8B")
    for change, text in (
        ({"n_kv_heads": 5}, "Llama-3-8B: n_heads: expected a multiple of n_kv_heads 5, got 32"),
        ({"layers": 31}, "Llama-3-8B: windows: expected 31 entries, one a layer, got 32"),
        ({"windows": (0,) * 32}, "Llama-3-8B: windows: expected at least 1 key in layer 0, got 0"),
        ({"d_ff": None}, "Llama-3-8B: d_ff: expected a width for the layers without experts, got none"),
        ({"shared_kv_layers": 32}, "Llama-3-8B: shared_kv_layers: expected 0 to 31, got 32"),
        ({"head_dim": 0}, "Llama-3-8B: head_dim: expected at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
            dataclasses.replace(shape, **change)


def tiny(**changes):
    """A small config of Llama's kind: 3 layers, 6 heads of 5."""
    return {
        "model_type": "llama",
        "hidden_size": 30,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "intermediate_size": 7,
        "vocab_size": 11,
        **changes,
    }
