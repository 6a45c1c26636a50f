"""Does it fit, and what would: against sums done by hand, and against what fitting means."""

from dataclasses import replace

import pytest

from attnbook.costs.budget import MANY, budget, changes
from attnbook.costs.kv import kv_cache_bytes

GIB = 1 << 30
TIGHT = {"context": 32768, "requests": 24, "memory": 80 * GIB}
LLAMA = "Llama-3.1-70B"


def test_a_sum_done_by_hand():
    """2 · 8 heads · 128 numbers · 80 layers · 2 bytes · 32768 tokens · 24 requests are 240 GiB."""
    found = budget(LLAMA, **TIGHT)
    assert found.cache == 2 * 8 * 128 * 80 * 2 * 32768 * 24 == 240 * GIB
    assert found.needed == found.weights + found.cache
    assert not found.fits


def test_all_fits_where_nobody_asked():
    """Without memory there is no room to compare with, and nothing to change."""
    found = budget(LLAMA, context=32768)
    assert found.room is None
    assert found.fits
    assert changes(found) == []


def test_the_edge_is_a_byte_wide():
    """What is needed fits exactly, a byte less does not; the reserve of each GPU counts."""
    needed = budget(LLAMA, context=101, requests=3).needed
    assert budget(LLAMA, context=101, requests=3, memory=needed).fits
    assert not budget(LLAMA, context=101, requests=3, memory=needed - 1).fits
    half = -(-needed // 2)
    assert budget(LLAMA, context=101, requests=3, memory=half + 5, gpus=2, reserve=5).fits
    assert not budget(LLAMA, context=101, requests=3, memory=half + 5, gpus=2, reserve=6).fits


@pytest.mark.parametrize("name", [LLAMA, "Gemma-3-27B", "DeepSeek-V3", "gpt-oss-120b"])
def test_the_most_is_the_most(name):
    """One request more, or one token more, does not fit; so many do."""
    free = budget(name, context=5003, requests=7)
    tight = replace(free, memory=free.weights + 3 * free.cache // 2)
    for field, most in (("requests", tight.most_requests), ("context", tight.longest_context)):
        assert most is not None
        assert most > getattr(free, field)
        assert replace(tight, **{field: most}).fits
        assert not replace(tight, **{field: most + 1}).fits


def test_a_window_everywhere_has_no_longest_context():
    """A cache that stops growing fits at any length, or at none."""
    config = {
        "model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 97, "sliding_window": 31,
    }  # fmt: skip
    most = kv_cache_bytes(config, tokens=MANY)
    free = budget(config, context=7, weights=11)
    assert replace(free, memory=11 + most).longest_context is None
    assert replace(free, memory=10 + most).longest_context == 30
    assert replace(free, memory=10).most_requests == 0


def test_every_change_makes_it_fit_and_none_is_idle():
    """The fewest first; none holds all of another's parts, so each part is needed."""
    over = budget("Gemma-3-27B", context=131072, requests=4, memory=80 * GIB)
    found = changes(over)
    assert [len(change.parts) for change in found] == sorted(len(change.parts) for change in found)
    assert all(change.budget.fits for change in found)
    assert [change.what for change in found[:2]] == ["2 requests", f"a context of {over.longest_context}"]
    both = budget(LLAMA, **TIGHT)
    parts = [set(change.parts) for change in changes(both)]
    assert not any(one < other for one in parts for other in parts)
    assert "a cache in float8, weights in int4 and 9 requests" in [change.what for change in changes(both)]
    assert "5 GPUs" in [change.what for change in changes(both)]


def test_smaller_types_scale_what_was_given():
    """Weights of a known size shrink with their type; a type that is as small already is not offered."""
    over = budget(LLAMA, context=1009, weights=70 * GIB, weights_dtype="int8", kv_dtype="fp8", memory=36 * GIB)
    assert over.with_types("int4", "fp8").weights == 35 * GIB
    said = [change.what for change in changes(over)]
    assert any("int4" in what for what in said)
    assert not any("float8" in what for what in said)


def test_nothing_helps_where_there_is_no_room():
    """A reserve larger than the memory leaves no GPU of use."""
    assert changes(budget(LLAMA, context=11, memory=5, reserve=7)) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": -1}, "context: .*got -1"),
        ({"context": 1, "gpus": 0}, "gpus: expected at least 1, got 0"),
        ({"context": 1, "memory": -3}, "memory: .*got -3"),
        ({"context": 1, "kv_dtype": "fp7"}, "dtype: expected one of .* got 'fp7'"),
        ({"context": 1, "weights_dtype": "fp7"}, "dtype: expected one of .* got 'fp7'"),
    ],
)
def test_what_is_wrong_is_said(options, said):
    """By its name, with what was expected and what came."""
    with pytest.raises(ValueError, match=said):
        budget(LLAMA, **options)


def test_weights_that_cannot_be_counted():
    """The cache could be: whoever knows the file's size says it."""
    config = {"model_type": "unheard-of", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "intermediate_size": 1, "vocab_size": 5}  # fmt: skip
    with pytest.raises(ValueError, match=r"weights: .*unheard-of.*; say how large they are"):
        budget(config, context=10)
    assert budget(config, context=10, weights=GIB).needed == GIB + 2 * 64 * 3 * 2 * 10
