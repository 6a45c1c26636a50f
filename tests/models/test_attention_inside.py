"""Another attention inside the opened model: the same function gives the same model, another one another."""

import pytest
import torch

from attnbook.models.generate import generate
from attnbook.models.smollm2 import SmolLM2
from attnbook.reference import attention as plain
from attnbook.reference import causal_mask
from attnbook.reference.rope_scaling import LinearScaling
from tests.models.small_gguf import HEAD_DIM, HEADS, KV_HEADS, LAYERS, TOKENS, write

T = 11
PROMPT = [3, 141, 59, 26, 53]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return SmolLM2.load(write(tmp_path_factory.mktemp("gguf") / "small.gguf"))


@pytest.fixture
def tokens():
    return torch.randint(len(TOKENS), (2, T), generator=torch.Generator().manual_seed(5))


def by_hand(q, k, v):
    """Causal, grouped, the last query and the last key the same token; in plain torch."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    t_q, t_kv = scores.shape[-2:]
    future = torch.ones(t_q, t_kv, dtype=torch.bool).triu(t_kv - t_q + 1)
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ v


def top_left(q, k, v):
    """The first query is taken for the first token: right until there is a cache."""
    mask = causal_mask(k.shape[2], k.shape[2], like=q)[: q.shape[2]]
    return plain(q, k, v, mask=mask)


def test_the_same_function_gives_the_same_model(small, tokens):
    """At once, in parts with a cache, and token by token; no weight is copied, and the model itself is as it was."""
    whole, written = small(tokens), generate(small, PROMPT, max_new_tokens=12, stop=())
    other = small.with_attention(by_hand)
    torch.testing.assert_close(other(tokens), whole, rtol=1e-4, atol=1e-4)
    cache = other.new_cache(T)
    parts = [other(part, cache=cache) for part in tokens.split((3, 1, T - 4), dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-4)
    assert generate(other, PROMPT, max_new_tokens=12, stop=()) == written
    assert other.layers[0].qkv.data_ptr() == small.layers[0].qkv.data_ptr()
    assert small.attention is None
    torch.testing.assert_close(other.with_attention(None)(tokens), whole, rtol=0, atol=0)


def test_another_function_gives_another_model(small, tokens):
    """One that is wrong only with a cache: the same logits at once, others with a cache, in generation, too."""
    other = small.with_attention(top_left)
    torch.testing.assert_close(other(tokens), small(tokens), rtol=1e-4, atol=1e-4)
    cache = other.new_cache(T)
    parts = torch.cat([other(part, cache=cache) for part in tokens.split((5, T - 5), dim=1)], 1)
    torch.testing.assert_close(parts[:, :5], small(tokens)[:, :5], rtol=1e-4, atol=1e-4)
    assert float((parts - small(tokens))[:, 5:].abs().max()) > 1
    written = [generate(m, PROMPT, max_new_tokens=12, stop=()) for m in (small, other)]
    assert written[0][0] == written[1][0]
    assert written[0] != written[1]


def test_what_it_is_given(small, tokens):
    """Once a layer: the queries of this call, all keys and values so far, heads not repeated."""
    seen = []

    def keep(q, k, v):
        seen.append((q.shape, k.shape, v.shape))
        return by_hand(q, k, v)

    other = small.with_attention(keep)
    cache = other.new_cache(T)
    other(tokens[:, :4], cache=cache)
    other(tokens[:, 4:], cache=cache)
    calls = [((2, HEADS, n, HEAD_DIM), *[(2, KV_HEADS, t, HEAD_DIM)] * 2) for n, t in ((4, 4), (T - 4, T))]
    assert seen == [call for call in calls for _ in range(LAYERS)]
    seen.clear()
    generate(other, PROMPT, max_new_tokens=2, stop=())
    calls = [((1, HEADS, n, HEAD_DIM), *[(1, KV_HEADS, t, HEAD_DIM)] * 2) for n, t in ((5, 5), (1, 6))]
    assert seen == [call for call in calls for _ in range(LAYERS)]


def test_what_else_the_model_can_do_goes_through_it(small, tokens):
    """Its weights, heads that are off, a scaling; a mask or sinks it would not see are refused."""
    everything = small.with_attention(lambda q, k, v: plain(q, k, v))
    assert everything.attention_weights(tokens[0]).triu(1).any()
    assert not small.with_attention(by_hand).attention_weights(tokens[0]).triu(1).any()
    off = small(tokens, heads_off={(1, 2)})
    torch.testing.assert_close(small.with_attention(by_hand)(tokens, heads_off={(1, 2)}), off, rtol=1e-4, atol=1e-4)
    assert everything.with_scaling(LinearScaling(4)).attention is everything.attention
    for options in ({"mask": torch.ones(T, T, dtype=torch.bool)}, {"sinks": torch.zeros(LAYERS, HEADS)}):
        with pytest.raises(ValueError, match=r"mask and sinks are for attnbook\.attention: expected neither"):
            everything(tokens, **options)
