"""Symptoms made, found and mended; budgets and pages counted: the experiments of chapter 11, small."""

import pytest
import torch

from attnbook.experiments import (
    _faults,
    practice_batch,
    practice_gradient,
    practice_kernels,
    practice_kv,
    practice_memory,
    practice_models,
    practice_nan,
    practice_paging,
    practice_too_good,
)
from attnbook.experiments._command import command
from attnbook.probes import batch_dependence, causal_leak

GIB = 1 << 30


def test_a_training_that_breaks_is_explained():
    """Each model breaks, its twin does not, and the softmax is named before and not after another step."""
    found = practice_nan.run(models=1, rate=0.4)
    assert found["practice.nan_broken"] == found["practice.nan_named"] == 1
    assert found["practice.nan_healthy_broken"] == found["practice.nan_healthy_found"] == 0
    assert found["practice.nan_in_softmax"] is True
    assert "aten.exp" in found.data["report"]
    assert "not run" in found.data["late"]


def test_a_gradient_alone_can_be_nan():
    """The forward probe passes; torch's own search names the root, and nothing where ε is inside."""
    found = practice_gradient.run(t=3, d=4)
    assert found["practice.gradient_probe_passes"] is True
    assert (found["practice.gradient_nans"], found["practice.gradient_inside_nans"]) == (4, 0)
    assert "SqrtBackward" in found.data["said"]
    assert practice_gradient.anomaly(lambda: None) == ""


def test_nobody_honest_learns_random_tokens():
    """Below the floor go the model that sees ahead and the one that is given its input as the answer."""
    found = practice_too_good.run(models=2, steps=20, t=6)
    floor = found["practice.good_floor"]
    assert found["practice.good_ahead"] < floor / 2
    assert found["practice.good_unshifted"] < floor / 2
    assert found["practice.good_honest"] > 0.98 * floor
    assert [found[f"practice.good_{way}_found"] for way in ("honest", "ahead", "unshifted")] == [0, 2, 0]


def test_the_convolution_is_the_leak():
    """Not the attention behind it: shifted into the past it passes."""
    tokens = torch.arange(6)[None] % _faults.VOCAB
    assert causal_leak(_faults.Mixed(ahead=False), tokens, vocabulary=_faults.VOCAB).ok
    assert {f.input - f.output for f in causal_leak(_faults.Mixed(ahead=True), tokens, vocabulary=16).findings} == {1}


def test_what_depends_on_the_batch_is_found():
    """Every fault, none of the mended; and with sentences of one length the filling hides."""
    found = practice_batch.run(b=4, t=8)
    assert found["practice.batch_found"] == len(_faults.FAULTS)
    assert found["practice.batch_false_alarms"] == 0
    assert found["practice.batch_equal_lengths_pass"] is True


def test_sentences_are_filled_on_the_right():
    """One is as long as asked, all are at least half as long."""
    x = _faults.sentences(torch.Generator().manual_seed(1), 5, 10)
    lengths = (x != _faults.PAD).sum(1)
    assert lengths.max() == 10
    assert lengths.min() >= 5
    for row, n in zip(x, lengths.tolist(), strict=True):
        assert (row[n:] == _faults.PAD).all()
    assert not batch_dependence(_faults.Answering(side="left", hidden=False), x).ok


def test_decoding_moves_no_bit_and_a_dependence_is_seen():
    """By splits of a fixed size; an attention that looks at the batch's size is caught by the same comparison."""
    g = torch.Generator().manual_seed(0)
    q, (k, v) = torch.randn(2, 3, 1, 16, generator=g), torch.randn(2, 2, 3, 600, 16, generator=g)
    for lengths in (None, (600, 400)):
        assert practice_kernels.moved(practice_kernels.ours, q, k, v, lengths) == 0
        assert practice_kernels.moved(practice_kernels.sdpa, q, k, v, lengths) < 1e-5
    assert practice_kernels.moved(lambda q, k, v, mask: q * len(q), q, k, v, None) > 0.1


def test_threads_are_set_back():
    """After torch was given one more."""
    before = torch.get_num_threads()
    with practice_kernels.threads_are(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_a_table_grows_with_the_square():
    """t² + linear for the formula, linear for tiles; each piece of memory counts once."""
    found = practice_memory.run(t=128, d=8)
    assert found["practice.memory_formula"] == (256**2 + 3 * 8 * 256) / (128**2 + 3 * 8 * 128)
    assert found["practice.memory_tiled"] == found["practice.memory_sdpa"] == 2
    x = torch.ones(5, requires_grad=True)
    assert practice_memory.saved_bytes(lambda x: x * x, x) == 5 * 4


def test_the_budget_of_a_small_model():
    """What the command prints is what is counted: 28 layers · 2 · 8 heads · 128 · 2 bytes a token."""
    found = practice_kv.run("Qwen3-0.6B", context=1024, requests=10, memory=2, gpus=1, shorter=512, window=64)
    token = 28 * 2 * 8 * 128 * 2
    assert found["practice.kv_token"] == token
    assert found["practice.kv_cache"] == found["practice.kv_now_cache"] == 10 * 1024 * token
    left = 2 * GIB - found["practice.kv_weights"]
    assert found["practice.kv_now_requests"] == left // (1024 * token)
    assert found["practice.kv_shorter_requests"] == left // (512 * token)
    assert found["practice.kv_float8_requests"] == left // (512 * token)
    assert found["practice.kv_window_cache"] == 10 * (1024 + 64) * token // 2
    assert found["practice.kv_no_groups_cache"] == 2 * found["practice.kv_cache"]


def test_a_command_that_could_not_run_is_an_error():
    """Its message is passed on."""
    with pytest.raises(RuntimeError, match=r"attnbook kv --model Nobody --context 1 ended with 2: .*Nobody"):
        command("kv", "--model", "Nobody", "--context", "1")


def test_the_table_of_models():
    """Linear in the context, except where windows end."""
    found = practice_models.run(contexts=(4096, 8192))
    assert found["practice.cache_llama3_8b_8"] == 2 * found["practice.cache_llama3_8b_4"]
    assert found["practice.cache_gemma3_27b_8"] < 2 * found["practice.cache_gemma3_27b_4"]


def test_pages_are_given_out_until_none_is_left():
    """7 pages of 4: lengths 5, 4 and 9 take 2, 1 and 3; the next 5 find one only."""
    lengths = torch.tensor([5, 4, 9, 5, 1])
    assert practice_paging.fill(lengths, 7, 4) == (3, 18, 24)
    assert practice_paging.fill(lengths, 1, 4) == (0, 0, 0)
    assert practice_paging.fill(lengths, 100, 4) == (5, 24, 4 * (2 + 1 + 3 + 2 + 1))


def test_pages_waste_less_than_reservations():
    """And nothing is won where all requests are the longest."""
    found = practice_paging.run(longest=256, typical=20, reserved=4, sizes=(4, 16), repeats=2)
    assert (
        found["practice.paging_waste_4"] < found["practice.paging_waste_16"] < found["practice.paging_reserved_waste"]
    )
    assert found["practice.paging_requests_4"] > found["practice.paging_reserved"] == found["practice.paging_all_long"]
