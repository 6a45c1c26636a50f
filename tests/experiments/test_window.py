"""Windows measured: pairs, tiles and bytes, conventions, reach, rings, sinks, global tokens, and the trained model."""

from collections import defaultdict

import pytest
import torch

from attnbook.experiments import (
    _window_text,
    window_cache,
    window_conventions,
    window_costs,
    window_global,
    window_influence,
    window_reach,
    window_sinks,
    window_smollm2,
)
from tests.models.small_gguf import real


def test_costs_grow_with_the_length():
    """32, 64 and 128 tokens with a window of 8 in tiles of 4: a tile of queries needs three of keys."""
    found = window_costs.run(lengths=(32, 64, 128), window=8, d=8, tile=4)
    assert found["window.pairs"] == 8 * 128 - 28
    assert found["window.pairs_causal"] == 128 * 129 // 2
    assert found["window.tiles"] == 1 + 2 + 30 * 3
    assert found["window.tiles_causal"] == 32 * 33 // 2
    for name in ("pairs_as_counted", "pairs_formula", "tiles_as_told", "bytes_rest_is_constant"):
        assert found[f"window.{name}"] is True
    assert found["window.bytes_told"] == 128 * (8 + 1) * 4
    assert found["window.bytes_told"] < found["window.bytes"] < found["window.bytes_mask"]
    assert found["window.tiled_error"] < 1e-5


def test_one_word_two_windows():
    """Each spelling's own count, and the row that is left of one of them."""
    found = window_conventions.run(window=3, t=8, d=4, repeats=2)
    assert found.data["keys"] == {"ours": 3, "band": 3, "diagonal": 4, "at_most": 4}
    assert window_conventions.SPELLINGS["diagonal"](2, 5)[4].tolist() == [False, False, True, True, True]
    assert found["window.one_more_off"] > 0.05


def test_transformers_counts_as_we_do():
    """Its mask shows `sliding_window` keys, its own among them."""
    masking = pytest.importorskip("transformers.masking_utils")
    rule = masking.sliding_window_causal_mask_function(4)
    seen = [[bool(rule(*torch.tensor([0, 0, i, j]))) for j in range(9)] for i in range(9)]
    assert seen == window_conventions.SPELLINGS["ours"](4, 9).tolist()


def test_transformers_hands_flash_attention_one_less():
    """What flash-attention counts is the keys before the query's own."""
    flash = pytest.importorskip("transformers.modeling_flash_attention_utils")
    made = flash._process_flash_attention_kwargs(
        query_length=9, key_length=9, is_causal=True, sliding_window=4,
        supports_mapping=defaultdict(bool, window_size=True),
    )  # fmt: skip
    assert made["window_size"][0] == 3


def test_layers_reach_one_window_less_a_token_each():
    """A window of 3: 3, 5 and 7 tokens; and a change is 0 beyond and nowhere within."""
    found = window_reach.run(window=3, depths=(1, 2, 3), t=12, models=2, texts=1)
    assert [found[f"window.reach_{depth}"] for depth in (1, 2, 3)] == [3, 5, 7]
    assert found["window.reach_one_more"] == 10
    change = found.data["change"]
    assert (change[:7] > 0).all()
    assert not change[7:].any()
    assert window_reach.layers_needed(7, 3) == 3
    assert window_reach.layers_needed(8, 3) == 4


def test_a_ring_is_enough_and_a_shorter_one_is_not():
    """The same logits as from all keys; each mistake begins at the token at which it must."""
    found = window_cache.run(window=3, t=9, layers=2, chunk=4)
    for name in ("ring_error", "ring_and_all_apart", "slots_in_any_order", "chunk_error"):
        assert found[f"window.{name}"] < 1e-12
    assert found["window.ring_slots"] == 3
    assert found["window.ring_early_begins"] == 2
    assert found["window.ring_slots_begins"] == 3
    assert found["window.ring_too_small_refused"] is True
    assert found["window.slots_alibi_off"] is True
    assert (found["window.chunk_keys"], found["window.chunk_cut_wrong"], found["window.chunk_cut_empty"]) == (6, 3, 1)
    assert found["window.gemma_windows"] == 52


def test_a_sink_counts_once():
    """As a key without a value, in tiles, in halves; forgotten it is longer, twice shorter."""
    found = window_sinks.run(window=4, t=10, d=8, repeats=3)
    for name in ("as_a_key", "in_tiles", "merged"):
        assert found[f"window.sink_{name}"] < 1e-12
    assert found["window.sink_forgotten"] > 0.005
    assert found["window.sink_twice"] > 0.005
    assert found["window.sink_misfits"] < 1e-3
    assert found["window.no_sink_misfits"] == pytest.approx(1)


def test_a_global_token_makes_two_layers_whole():
    """But not under a causal mask, where the first token has nobody to ask."""
    found = window_global.run(side=2, t=15, long=512, tile=16, share=16)
    assert [found[f"window.{name}_{n}"] for name in ("local", "global") for n in (1, 2)] == [3, 5, 4, 15]
    assert (found["window.causal_first_reach"], found["window.causal_first_kept"]) == (5, 6)
    assert found["window.scattered_tiles"] == 1
    assert found["window.blocks_tiles"] == pytest.approx(found["window.blocks_pairs"])


def test_kept_tokens_stand_beside_the_window():
    """A window of two, the first token kept: the future stays hidden."""
    seen = _window_text.mask(4, 2, (0, 2)).int().tolist()
    assert seen == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]


def test_the_trained_model_needs_its_first_token():
    """On a short text already; and where everything is in sight, a window changes nothing."""
    real()
    text = _window_text.tokens(21)
    masks = (None, _window_text.mask(21, 4), _window_text.mask(21, 4, (0,)))
    full, alone, first = (window_smollm2.each_loss(text, mask=mask) for mask in masks)
    assert full[6:].mean() < first[6:].mean() < alone[6:].mean()
    torch.testing.assert_close(alone[:3], full[:3], rtol=1e-4, atol=1e-4)


def test_no_pull_from_where_nothing_is_seen():
    """One layer's window on the embeddings alone would be a step; through all layers it falls, and sums to 1."""
    real()
    text = _window_text.tokens(25)
    share = window_influence.pulls(text, _window_text.mask(text.shape[1], 1, (0,)), 2)
    torch.testing.assert_close(share[:, 0], torch.ones(2))
    torch.testing.assert_close(share.sum(1), torch.ones(2))
