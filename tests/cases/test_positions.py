"""Positions: angles in half precision, layouts of RoPE, filling at the left, and decoding one token at a time."""

import math

import numpy as np
import pytest
import torch

import attnbook
from attnbook import reference
from tests.cases.ways import WAYS, normal, run
from tests.tolerance import assert_right

FAR = [0, 255, 2_047, 2_048, 2_049, 65_504, 131_072, 2**20 - 1, 2**20]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("theta", [1e4, 5e5])
def test_cosines_at_any_position(theta, library):
    """gpt-neox#1003: errors below 1e-6 at any position up to 2²⁰ (half-precision angles leave 0.8 at 2 048)."""
    positions = torch.tensor(FAR) if library == "torch" else np.array(FAR)
    found = reference.rope_cos_sin(positions, 16, theta=theta)
    angle = [[p * theta ** (-2 * i / 16) for i in range(8)] for p in FAR]
    for x, f in zip(found, (math.cos, math.sin), strict=True):
        right = np.array([[f(a) for a in row] for row in angle])
        assert np.abs(np.asarray(x, dtype=np.float64) - right).max() < 1e-6


def turned(x, positions, theta=1e4):
    """RoPE by the definition, half layout, float64."""
    x = x.double().numpy()
    half = x.shape[-1] // 2
    angle = np.array(positions, dtype=np.float64)[:, None] * theta ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_vectors_at_any_position(dtype):
    """gpt-neox#1003: a half-precision vector is turned by the right angle and rounded once."""
    x = normal(2, 3, len(FAR), 16, dtype=dtype)
    found = attnbook.rope(x, torch.tensor(FAR))
    right = turned(x, FAR)
    assert found.dtype == dtype
    bound = {torch.float64: 1e-9}.get(dtype, 1e-6) * np.abs(right).max() + torch.finfo(dtype).eps / 2 * np.abs(right)
    assert (np.abs(found.double().numpy() - right) <= bound).all()


@pytest.mark.parametrize("way", WAYS)
def test_scores_depend_on_the_difference_alone(way):
    """The same tokens 2²⁰ positions later: the same output, in float32."""
    q, k, v = normal(1, 2, 5, 16), normal(1, 2, 5, 16, seed=1), normal(1, 2, 5, 16, seed=2)
    here, there = (
        run(way, attnbook.rope(q, at), attnbook.rope(k, at), v)[0] for at in (torch.arange(5), torch.arange(5) + 2**20)
    )
    torch.testing.assert_close(here, there, rtol=0, atol=2e-6)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("rotary_dim", [None, 4])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_weights_of_the_other_layout(library, rotary_dim, heads):
    """transformers#25199: rows of W_q and W_k are permuted once, then scores are equal; unpermuted they are not."""
    d, x = 6, normal(1, 5, 7, dtype=torch.float64)
    w_q, w_k = (normal(h * d, 7, seed=h + 10 * i, dtype=torch.float64) for i, h in enumerate(heads))
    if library == "numpy":
        x, w_q, w_k = (a.numpy() for a in (x, w_q, w_k))

    def scores(w_q, w_k, layout):
        q, k = (reference.split_heads(x @ w.T, n) for w, n in zip((w_q, w_k), heads, strict=True))
        q, k = (reference.rope(a, layout=layout, rotary_dim=rotary_dim) for a in (q, k))
        return np.asarray(q) @ np.repeat(np.asarray(k), heads[0] // heads[1], 1).swapaxes(-1, -2)

    right = scores(w_q, w_k, "interleaved")
    moved = [
        reference.permute_rope_rows(w, n, to="half", rotary_dim=rotary_dim)
        for w, n in zip((w_q, w_k), heads, strict=True)
    ]
    np.testing.assert_allclose(scores(*moved, "half"), right, rtol=1e-12, atol=1e-12)
    assert np.abs(scores(w_q, w_k, "half") - right).max() > 0.1


LAYERS = {"reference": reference.MultiHeadAttention, "door": attnbook.MultiHeadAttention}
KINDS = {
    "rope": {"rope": True},
    "alibi": {"alibi": True},
    "window": {"rope": True, "window": 3},
    "everything": {"rope": True, "window": 4, "sinks": True, "softcap": 5.0, "qk_norm": True},
}


def layer(room, kind, dtype=torch.float64):
    """A causal layer of grouped heads, its weights from a seed."""
    torch.manual_seed(0)
    return LAYERS[room](8, 4, 2, is_causal=True, dtype=dtype, **KINDS[kind])


@pytest.mark.parametrize("room", LAYERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_row_is_what_it_is_alone(side, kind, room):
    """transformers#3021: with the mask, and positions from it, each row equals the same row alone."""
    lengths, t = [7, 4, 1], 7
    x = normal(3, t, 8)
    mask = reference.padding_mask(torch.tensor(lengths), t, side=side)
    options = {"mask": mask, "positions": reference.positions_from_mask(mask)}
    with torch.no_grad():
        together, in_float32 = (layer(room, kind, d)(x.to(d), **options) for d in (torch.float64, torch.float32))
        for row, n in enumerate(lengths):
            tokens = slice(t - n, t) if side == "left" else slice(n)
            alone, baseline = (
                layer(room, kind, d)(x[row : row + 1, tokens].to(d)) for d in (torch.float64, torch.float32)
            )
            assert_right(together[row : row + 1, tokens].float(), alone.numpy(), baseline.numpy())
            assert_right(in_float32[row : row + 1, tokens], alone.numpy(), baseline.numpy())


def test_without_positions_a_row_padded_at_the_left_turns_elsewhere():
    """With learned positions it matters which row of the table is taken: the first token's is number 0."""
    mask = torch.tensor([[False, False, True, True, True]])
    table = reference.LearnedPositions(5, 3)
    assert torch.equal(table(reference.positions_from_mask(mask))[0, 2:], table(3))


CACHES = {
    "grows": attnbook.KVCache,
    "of fixed capacity": lambda: attnbook.KVCache(9),
    "pages": lambda: attnbook.PagedKVCache(12, 2),
}


@pytest.mark.parametrize("room", LAYERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", [*CACHES, "ring"])
@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 1, 3]], ids=str)
def test_cached_decoding_is_the_whole_at_every_position(chunks, cache, kind, room):
    """One token at a time, or a prompt and then tokens: equal to the full forward pass, at every position."""
    window = KINDS[kind].get("window")
    kept = attnbook.RingKVCache(window or 9) if cache == "ring" else CACHES[cache]()
    x = normal(2, 9, 8, dtype=torch.float64)
    with torch.no_grad():
        net = layer(room, kind)
        whole, baseline = net(x), layer(room, kind, torch.float32)(x.float())
        parts = [net(part, cache=kept) for part in x.split(chunks, dim=1)]
    assert_right(torch.cat(parts, 1).float(), whole.numpy(), baseline.numpy())
