"""Words for a mask say what transformers' booleans say, and are what the attention is called with."""

import itertools

import numpy as np
import pytest
import torch
from transformers import masking_utils

import attnbook.api
from attnbook.integrations.lazy_mask import LazyMask, Words
from attnbook.integrations.transformers_masks import alike, attention_mask
from tests.integrations.small_models import CONFIGS, WINDOW, model, padded, tokens


def ask(kind, *, q_length, past, capacity, keys, local_size=3):
    """The mask that transformers would ask for: a cache of fixed `capacity`, or one that grows (None)."""
    window = kind == "window"
    kv_offset = max(past - local_size + 1, 0) if window and capacity is None else 0
    kv_length = past + q_length - kv_offset if capacity is None else capacity
    function = {
        "causal": masking_utils.causal_mask_function,
        "window": masking_utils.sliding_window_causal_mask_function(local_size),
        "both ways": masking_utils.bidirectional_mask_function,
    }[kind]
    return attention_mask(
        masking_utils, batch_size=2, q_length=q_length, kv_length=kv_length, q_offset=past, kv_offset=kv_offset,
        mask_function=function, attention_mask=keys, local_size=local_size if window else None,
        allow_is_causal_skip=kind != "both ways", allow_is_bidirectional_skip=kind == "both ways",
    )  # fmt: skip


def spelled(words, shape):
    """Booleans (b, 1, t_q, t_kv) by the definition of the options."""
    t_q = shape[2]
    allowed = np.zeros(shape, dtype=bool)
    for b, i, j in np.ndindex(shape[0], t_q, words.t_kv):
        last = i + words.t_kv - t_q
        seen = not words.is_causal or j <= last
        seen &= words.window is None or j > last - words.window
        allowed[b, 0, i, j] = seen and (words.keys is None or bool(words.keys[b, 0, 0, j]))
    return allowed


@pytest.mark.parametrize("kind", ["causal", "window", "both ways"])
def test_the_words_say_what_the_booleans_say(kind):
    """For every small number of queries, of tokens before them, of capacity, with padding and without."""
    seen = 0
    for q_length, past, free, padding in itertools.product((1, 2, 5), (0, 1, 4, 7), (None, 0, 3), (None, 0, 2)):
        if kind == "both ways" and (past or free):
            continue  # no cache
        length = past + q_length
        keys = None
        if padding is not None:
            keys = torch.ones(2, length, dtype=torch.bool)
            keys[1, : min(padding, length - 1)] = False
        mask = ask(kind, q_length=q_length, past=past, capacity=None if free is None else length + free, keys=keys)
        assert isinstance(mask, LazyMask)
        words = mask.words
        assert (words.keys is None) == (keys is None or bool(keys[:, -words.t_kv :].all()))
        np.testing.assert_array_equal(mask.made().numpy(), spelled(words, mask.shape))
        assert words.t_kv <= mask.shape[3]
        seen += 1
    assert seen >= 12


def test_the_unused_end_of_a_cache_is_left_out():
    """A cache with room for more: only keys up to the last query's own are looked at."""
    mask = ask("causal", q_length=2, past=3, capacity=11, keys=None)
    assert mask.shape == (2, 1, 2, 11)
    assert mask.words == Words(is_causal=True, window=None, t_kv=5, keys=None)


def test_any_other_function_is_evaluated():
    """Chunks, or a function of one's own, also one that resembles a known one, become booleans at once."""
    chunks = masking_utils.chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.int))
    own = masking_utils.and_masks(masking_utils.causal_mask_function, lambda b, h, q, k: k != 1)
    for function in (chunks, own):
        mask = attention_mask(
            masking_utils, batch_size=2, q_length=5, kv_length=5, mask_function=function, local_size=3
        )
        assert type(mask) is torch.Tensor
        expected = [[bool(function(torch.tensor(0), 0, torch.tensor(i), torch.tensor(j))) for j in range(5)]
                    for i in range(5)]  # fmt: skip
        assert mask[0, 0].tolist() == expected


def test_functions_are_alike_by_code_and_what_they_enclose():
    """The same factory with the same number, however often it is called; not with another number, nor another one."""
    window = masking_utils.sliding_window_causal_mask_function
    assert alike(window(3), window(3))
    assert not alike(window(3), window(4))
    assert not alike(window(3), masking_utils.causal_mask_function)
    assert not alike(window(3), masking_utils.sliding_window_overlay(3))
    assert not alike(masking_utils.sliding_window_bidirectional_mask_function(3), window(3))
    packed = masking_utils.packed_sequence_mask_function
    assert not alike(packed(torch.zeros(2)), packed(torch.zeros(2)))


def test_forbidden_skips_give_booleans():
    """Where transformers wants the booleans, to trace or to change them, it gets a plain tensor."""
    causal, both = masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function
    for function in (causal, both):
        mask = attention_mask(
            masking_utils, batch_size=1, q_length=3, kv_length=3, mask_function=function,
            allow_is_causal_skip=False, allow_is_bidirectional_skip=False,
        )  # fmt: skip
        assert type(mask) is torch.Tensor
        assert mask.sum() == (6 if function is causal else 9)


def test_whatever_is_done_to_a_lazy_mask_is_done_to_booleans():
    """Slices, comparisons and moves give plain tensors with the right values."""
    for operation in (
        lambda mask: mask[:, :, 1:],
        lambda mask: ~mask,
        lambda mask: mask.to(torch.float32),
        lambda mask: torch.where(mask, 0.0, -torch.inf),
        lambda mask: mask & torch.ones(5, dtype=torch.bool),
        lambda mask: mask.clone(),
    ):
        mask = ask("causal", q_length=5, past=0, capacity=None, keys=None)
        plain = torch.ones(2, 1, 5, 5).tril().bool()
        result = operation(mask)
        assert type(result) is torch.Tensor
        assert torch.equal(result, operation(plain))


def test_a_lazy_mask_that_is_written_to_says_no_words_any_more():
    """A model may hide a key by assignment: from then on the booleans count."""
    mask = attention_mask(
        masking_utils, batch_size=1, q_length=5, kv_length=5, mask_function=masking_utils.causal_mask_function
    )
    assert "is_causal=True" in repr(mask)
    assert mask.words is not None
    mask[:, :, :, 0] = False
    assert mask.words is None
    assert not mask.made()[..., 0].any()
    assert mask.made().sum() == 15 - 5


def test_a_static_cache_may_move_on_before_the_mask_is_read():
    """Where the queries begin is a tensor that such a cache counts up in place; the mask remembers the number."""
    past = torch.tensor(3)
    mask = attention_mask(
        masking_utils, batch_size=1, q_length=2, kv_length=9, q_offset=past,
        mask_function=masking_utils.causal_mask_function,
    )  # fmt: skip
    past.add_(2)
    assert mask.made()[0, 0].sum(-1).tolist() == [4, 5]


@pytest.fixture
def calls(monkeypatch):
    """The options of every call of `attnbook.attention`, with the shapes of q, k and mask."""
    found, attention = [], attnbook.api.attention

    def spy(q, k, v, *, mask, **options):
        found.append({"q": q.shape, "k": k.shape, "mask": None if mask is None else mask.shape, **options})
        return attention(q, k, v, mask=mask, **options)

    monkeypatch.setattr(attnbook.api, "attention", spy)
    return found


@pytest.mark.parametrize("family", CONFIGS)
def test_the_attention_is_called_with_options_not_with_a_dense_mask(calls, family):
    """Without padding there is no mask at all; with padding one row of booleans over the keys. Heads stay grouped."""
    made, ids = model(family, "attnbook"), tokens(3, 29)
    windows = {"llama": [None, None], "qwen3": [None, None], "mistral": [WINDOW] * 2, "mixtral": [WINDOW] * 2}
    windows = windows.get(family, [WINDOW, None])
    made(ids)
    made(ids, attention_mask=torch.ones_like(ids))
    made(ids, attention_mask=padded(3, 29, "left"))
    assert [call["window"] for call in calls] == windows * 3
    assert [call["mask"] for call in calls] == [None] * 4 + [(3, 1, 1, 29)] * 2
    for call in calls:
        assert call["is_causal"] is True
        assert (call["q"], call["k"]) == ((3, 6, 29, 14), (3, 2, 29, 14))


def test_a_long_window_takes_the_tiles():
    """What such a call takes by itself is the implementation that visits only tiles that somebody may see."""
    q, k = torch.zeros(1, 6, 1031, 14), torch.zeros(1, 2, 1031, 14)
    assert attnbook.api.explain(q, k, k, is_causal=True, window=WINDOW).impl == "tiled"


def test_cached_steps_are_called_with_options_too(calls):
    """One query against its past: no mask, and a sliding cache holds no more keys than the window."""
    made = model("mistral", "attnbook")
    made.generate(tokens(2, 11), max_new_tokens=4, do_sample=False, eos_token_id=None)
    assert [call["mask"] for call in calls] == [None] * 8
    assert [call["q"][2] for call in calls] == [11, 11] + [1] * 6
    assert [call["k"][2] for call in calls] == [11, 11] + [WINDOW] * 6


def test_a_static_cache_is_cut_to_what_is_used(calls):
    """The prompt sees its own keys, not the empty rest of the cache."""
    made = model("llama", "attnbook")
    made.generate(tokens(2, 11), max_new_tokens=2, do_sample=False, eos_token_id=None, cache_implementation="static")
    assert [call["k"][2] for call in calls[:2]] == [11, 11]
    assert [call["mask"] for call in calls[:2]] == [None, None]
