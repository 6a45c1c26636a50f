"""Memory: beyond the results a tile of scores, however long the sequences are."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from attnbook.tiled import attention
from attnbook.tiled.prepare import SCORES

MIB = 2**20


def peak(call):
    """The most bytes that torch held at a time above those at the start, from every allocation it made."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = call()
    held = most = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    assert most >= sum(x.nbytes for x in kept)
    return most


@pytest.mark.parametrize("window", [None, 512])
def test_forward_needs_a_tile_beside_its_result(normal, window):
    """Twice and four times the length: the same few MiB, where scores would be 4 and 16 times as many."""
    beside = []
    for t in (2048, 4096, 8192):
        q, k, v = (normal(1, 4, t, 16, dtype=torch.float32) for _ in "qkv")
        most = peak(lambda: attention(q, k, v, is_causal=True, window=window, return_lse=True))  # noqa: B023
        beside.append(most - q.nbytes - q.nbytes // 16)
    assert beside[2] < 1.1 * beside[1]
    assert beside[2] < 3 * 4 * SCORES  # scores, averages, and some change
    assert beside[2] < 4 * 8192 * 8192 * 4 / 64  # a small part of all scores


def test_backward_needs_tiles_beside_the_gradients(normal):
    """Inputs of twice the length add their own gradients and what forward keeps, and nothing that grows with t²."""
    beside = []
    for t in (1024, 2048):
        q, k, v = (normal(1, 4, t, 16, dtype=torch.float32).requires_grad_() for _ in "qkv")

        def call(q=q, k=k, v=v):
            return torch.autograd.grad(attention(q, k, v, is_causal=True).sum(), (q, k, v))

        beside.append(peak(call) - 4 * q.nbytes)  # out and three gradients
    assert beside[1] < 1.3 * beside[0]
    assert beside[1] < 5 * 4 * SCORES


@pytest.mark.parametrize(("b", "h"), [(1, 64), (64, 1), (8, 8)])
def test_many_heads_and_sequences_are_taken_in_turn(normal, b, h):
    """As many as fit into the scores of one tile."""
    q, k, v = (normal(b, h, 512, 4, dtype=torch.float32) for _ in "qkv")
    most = peak(lambda: attention(q, k, v, return_lse=True))
    assert most - q.nbytes - q.nbytes // 4 < 3 * 4 * SCORES


def test_keys_and_values_are_not_repeated(normal):
    """16 query heads on one: less memory than a copy of k for each would need."""
    q, k, v = (normal(1, h, 2048, 64, dtype=torch.bfloat16) for h in (16, 1, 1))
    q = q[:, :, -16:].contiguous()
    most = peak(lambda: (attention(q, k, v),))
    assert most < 16 * k.nbytes


def test_nothing_is_kept_for_backward_but_inputs_and_results(normal):
    """What the graph holds are q, k, v, out and lse."""
    q, k, v = (normal(1, 2, 33, 8, dtype=torch.float32).requires_grad_() for _ in "qkv")
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape) or x, lambda x: x):
        out, lse = attention(q, k, v, is_causal=True, return_lse=True)
    assert sorted(map(tuple, kept)) == sorted(map(tuple, (q.shape, k.shape, v.shape, out.shape, lse.shape)))
