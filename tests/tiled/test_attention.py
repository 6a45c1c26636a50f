"""Tiles against the truth: every option and dtype, awkward sizes, tiles of any size, inputs that broke others."""

import numpy as np
import pytest
import torch

from attnbook.tiled import attention, attention_forward
from tests.tolerance import as_float64, assert_refuses, assert_right, exact, garbage, plain

B, H_Q, H_KV = 2, 6, 3
SLOPES = torch.tensor([0.5, 0.25, 0.125, 1.0, 0.3, 0.7], dtype=torch.float64)
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0, 1.5, -2.0], dtype=torch.float64)
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 4},
    "softcap": {"softcap": 0.7},
    "slopes": {"alibi_slopes": SLOPES},
    "slopes of each sequence": {"alibi_slopes": torch.stack([SLOPES, SLOPES.flip(0)])},
    "sinks": {"sinks": SINKS},
    "scale": {"scale": 0.9},
    "everything": {
        "is_causal": True, "window": 5, "softcap": 1.5, "alibi_slopes": SLOPES, "sinks": SINKS, "scale": 0.8,
    },
}  # fmt: skip
TILES = {"tiles that suit": {}, "small tiles": {"tile_q": 5, "tile_k": 3}}
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def inputs(normal, t_q=11, t_kv=13, d=7, d_v=5, dtype=torch.float64):
    """q, k, v with grouped heads and different sizes along every axis."""
    return (
        normal(B, H_Q, t_q, d, dtype=dtype),
        normal(B, H_KV, t_kv, d, dtype=dtype),
        normal(B, H_KV, t_kv, d_v, dtype=dtype),
    )


def check_lse(lse, right):
    """Within rounding of float32 of the truth, and −inf in the same places."""
    assert np.array_equal(as_float64(lse) == -np.inf, right == -np.inf)
    seen = np.isfinite(right)
    np.testing.assert_allclose(as_float64(lse)[seen], right[seen].astype(np.float64), rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("t_q", "t_kv"), [(11, 13), (13, 3), (1, 5)])
def test_right_in_every_dtype(normal, dtype, name, tiles, t_q, t_kv):
    """As near to the truth as a plain calculation in the same dtype, with its lse; garbage is refused."""
    q, k, v = inputs(normal, t_q, t_kv, dtype=dtype)
    options = {key: x.to(dtype) if isinstance(x, torch.Tensor) else x for key, x in OPTIONS[name].items()}
    out, lse = attention(q, k, v, return_lse=True, **options, **TILES[tiles])
    right, baseline = exact(q, k, v, **options), plain(q, k, v, **options)
    assert out.dtype == dtype
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_right(out, right["out"], baseline)
    check_lse(lse, right["lse"])
    if dtype == torch.float32 and (t_q, t_kv) == (11, 13):
        assert_refuses(garbage(q, k, v, **options), right["out"], baseline)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("t_q", "t_kv", "d", "d_v"),
    [(97, 97, 40, 40), (111, 111, 59, 59), (203, 113, 80, 80), (113, 203, 111, 111), (97, 111, 192, 128)],
)
def test_awkward_sizes(normal, t_q, t_kv, d, d_v, is_causal):
    """Lengths and head dims that are no multiple of anything, in tiles that leave a rest of every axis."""
    q, k, v = (normal(1, 2, t, n, dtype=torch.float32) for t, n in ((t_q, d), (t_kv, d), (t_kv, d_v)))
    right, baseline = exact(q, k, v, is_causal=is_causal), plain(q, k, v, is_causal=is_causal)
    for tiles in ({}, {"tile_q": 32, "tile_k": 64}, {"tile_q": 64, "tile_k": 16}):
        out, lse = attention(q, k, v, is_causal=is_causal, return_lse=True, **tiles)
        assert_right(out, right["out"], baseline)
        check_lse(lse, right["lse"])


@pytest.mark.parametrize("tile_q", [1, 2, 7, 64])
@pytest.mark.parametrize("tile_k", [1, 3, 8, 64])
def test_the_size_of_tiles_changes_rounding_only(normal, tile_q, tile_k):
    """Of the output, the lse and all gradients, with every option at once."""
    q, k, v = (x.requires_grad_() for x in inputs(normal, 17, 19))
    slopes, sinks, mask = SLOPES.clone().requires_grad_(), SINKS.clone().requires_grad_(), normal(17, 19)
    mask[:, 3] = -torch.inf
    leaves = (q, k, v, slopes, sinks, mask.requires_grad_())

    def call(**tiles):
        out, lse = attention(
            q, k, v, mask=mask, is_causal=True, window=9, softcap=2.0, alibi_slopes=slopes, sinks=sinks,
            return_lse=True, **tiles,
        )  # fmt: skip
        return out, lse, *torch.autograd.grad((out * out).sum() + lse.sum(), leaves)

    for got, expected in zip(call(tile_q=tile_q, tile_k=tile_k), call(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("tile_k", [1, 4, 5, 16])
@pytest.mark.parametrize(("t", "window"), [(8, 4), (9, 4), (9, 5), (17, 16), (17, 17), (18, 16), (33, 15)])
def test_windows_at_the_edges_of_tiles(normal, t, window, tile_k):
    """Longer than a tile by one, shorter by one, as long as the sequence or one less: still applied."""
    q, k, v = (normal(1, 1, t, 3, dtype=torch.float32) for _ in "qkv")
    options = {"is_causal": True, "window": window}
    out = attention(q, k, v, tile_q=4, tile_k=tile_k, **options)
    assert_right(out, exact(q, k, v, **options)["out"], plain(q, k, v, **options))
    if window < t:
        assert (out[:, :, window:] - attention(q, k, v, is_causal=True)[:, :, window:]).abs().max() > 1e-3


def test_a_window_of_the_tiles_that_are_chosen(normal):
    """Nothing but sizes is given: longer than any tile, and one more."""
    q, k, v = (normal(1, 1, 1031, 3, dtype=torch.float32) for _ in "qkv")
    for window in (127, 128, 129, 1029, 1030):
        options = {"is_causal": True, "window": window}
        right, baseline = exact(q, k, v, **options)["out"], plain(q, k, v, **options)
        assert_right(attention(q, k, v, **options), right, baseline)
        worse = {"one more": exact(q, k, v, is_causal=True, window=window + 1)["out"]} if window < 1030 else {}
        for wrong in worse.values():
            assert np.abs(wrong - right).max() > np.abs(as_float64(baseline) - right).max() * 4


@pytest.mark.parametrize("name", [name for name, options in OPTIONS.items() if "window" not in options])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("t_q", "t_kv"), [(211, 211), (157, 211), (211, 157)])
def test_the_middle_of_a_window_that_goes_through_one_product(normal, monkeypatch, name, dtype, t_q, t_kv):
    """Many tiles that look alike at once, with every option, grouped heads, and rows before the first key."""
    from attnbook.tiled import forward

    monkeypatch.setattr(forward, "SCORES_IN_BAND", 2 * 2 * 32 * 48 * 2)  # two tiles at a time
    q, k, v = inputs(normal, t_q, t_kv, dtype=dtype)
    options = {key: x.to(dtype) if isinstance(x, torch.Tensor) else x for key, x in OPTIONS[name].items()}
    options |= {"is_causal": True, "window": 13}
    out, lse = attention(q, k, v, return_lse=True, **options)
    right = exact(q, k, v, **options)
    assert_right(out, right["out"], plain(q, k, v, **options))
    check_lse(lse, right["lse"])
    monkeypatch.setattr(forward, "band", lambda *sizes: None)
    other, _ = attention(q, k, v, return_lse=True, **options)
    torch.testing.assert_close(out, other)


# Masks


@pytest.mark.parametrize("shape", [(13,), (11, 13), (11, 1), (1, 13), (6, 1, 13), (2, 1, 1, 13), (2, 6, 11, 13), ()])
@pytest.mark.parametrize("kind", ["boolean", "−inf", "lowest", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_masks_of_every_kind_and_shape(normal, shape, kind, dtype):
    """Alone and with causality, in tiles of which some are hidden whole."""
    q, k, v = inputs(normal, dtype=dtype)
    may = normal(*shape) > 0.3
    bias = normal(*shape, dtype=dtype)
    hide = -torch.inf if kind != "lowest" else torch.finfo(dtype).min
    mask = may if kind == "boolean" else torch.where(may, bias if kind == "bias" else bias * 0, hide)
    options = {"allowed": np.broadcast_to(may.numpy(), (B, H_Q, 11, 13))}
    if kind == "bias":
        options["bias"] = torch.where(may, bias, 0).expand(B, H_Q, 11, 13)
    for is_causal in (False, True):
        out, lse = attention(q, k, v, mask=mask, is_causal=is_causal, return_lse=True, tile_q=4, tile_k=3)
        right = exact(q, k, v, is_causal=is_causal, **options)
        assert_right(out, right["out"], plain(q, k, v, is_causal=is_causal, **options))
        check_lse(lse, right["lse"])


@pytest.mark.parametrize("q_dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("mask_dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_lowest_number_of_either_dtype_hides(normal, q_dtype, mask_dtype):
    """A mask made for float16 and given in float32, or the other way round: a whole row of it gives 0, not mean(v)."""
    q, k, v = inputs(normal, dtype=q_dtype)
    for lowest in {torch.finfo(mask_dtype).min, max(torch.finfo(x).min for x in (q_dtype, mask_dtype))}:
        mask = torch.zeros(11, 13, dtype=mask_dtype)
        mask[4] = lowest
        out, lse = attention(q, k, v, mask=mask, return_lse=True)
        assert (out[:, :, 4] == 0).all()
        assert (lse[:, :, 4] == -torch.inf).all()
        assert (out[:, :, 5] != 0).any()


@pytest.mark.parametrize("mask", ["padding", "blocks", "everything"])
def test_tiles_that_a_mask_hides_are_not_calculated(normal, mask, monkeypatch):
    """Neither forward nor backward: the number of tiles whose scores are calculated is what the mask leaves."""
    from attnbook.tiled.scores import Scores

    calls, tile = [], Scores.tile
    monkeypatch.setattr(Scores, "tile", lambda self, *args, **kwargs: calls.append(1) or tile(self, *args, **kwargs))
    q, k, v = (normal(1, 1, 12, 3).requires_grad_() for _ in "qkv")
    blocks = torch.block_diag(*[torch.ones(4, 4)] * 3) > 0
    may = {"padding": torch.arange(12) < 5, "blocks": blocks, "everything": torch.zeros(12, 12, dtype=torch.bool)}[mask]
    left = {"padding": 3 * 2, "blocks": 3, "everything": 0}[mask]
    for given in (may, torch.where(may, 0.0, -torch.inf)):
        calls.clear()
        attention(q, k, v, mask=given, tile_q=4, tile_k=4).sum().backward()
        assert len(calls) == 2 * left


def test_the_first_tile_of_keys_wholly_hidden(normal):
    """And the last, and one in the middle: nothing is taken from −inf."""
    q, k, v = (normal(1, 1, 9, 3, dtype=torch.float32) for _ in "qkv")
    for hidden in (slice(0, 3), slice(3, 6), slice(6, 9), slice(0, 6)):
        for rows in (slice(None), slice(1, 2)):  # hidden from all, or from one row of the tile only
            may = torch.ones(9, 9, dtype=torch.bool)
            may[rows, hidden] = False
            out, lse = attention(q, k, v, mask=may, return_lse=True, tile_q=3, tile_k=3)
            right = exact(q, k, v, allowed=may.numpy())
            assert_right(out, right["out"], plain(q, k, v, allowed=may.numpy()))
            check_lse(lse, right["lse"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_causal_and_padding_are_combined_as_booleans(normal, dtype):
    """Padding written as the lowest number and causality: their sum would overflow."""
    q, k, v = inputs(normal, 7, 7, dtype=dtype)
    may = torch.arange(7) >= torch.tensor([4, 0])[:, None, None, None]  # 4 positions of filling at the left
    mask = torch.where(may, 0.0, torch.finfo(dtype).min).to(dtype)
    out = attention(q, k, v, mask=mask, is_causal=True)
    allowed = np.broadcast_to(may.numpy(), (B, H_Q, 7, 7))
    right, baseline = exact(q, k, v, allowed=allowed, is_causal=True), plain(q, k, v, allowed=allowed, is_causal=True)
    assert_right(out, right["out"], baseline)
    assert (out[0, :, :4] == 0).all()


# Alignment, sinks, caps


def test_one_new_token_sees_the_whole_past(normal):
    """t_q 1, t_kv 5, causal: the mean of all five for equal scores, not v[0] as top-left alignment gives."""
    v = normal(1, 1, 5, 3)
    out = attention(torch.zeros(1, 1, 1, 3).double(), normal(1, 1, 5, 3), v, is_causal=True)
    torch.testing.assert_close(out[0, 0, 0], v[0, 0].mean(0))


def test_queries_before_the_first_key(normal):
    """t_q 5, t_kv 2, causal: rows 0–2 are zero with lse −inf and no gradient, row 3 is v[0]."""
    q, k, v = (x.requires_grad_() for x in inputs(normal, 5, 2))
    out, lse = attention(q, k, v, is_causal=True, return_lse=True)
    assert (out[:, :, :3] == 0).all()
    assert (lse[:, :, :3] == -torch.inf).all()
    torch.testing.assert_close(out[:, :, 3], v[:, :, 0].repeat_interleave(2, 1))
    (out.sum() + lse.sum()).backward()
    assert (q.grad[:, :, :3] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_hidden_stays_hidden_under_a_cap():
    """Scores −49, −49.5 and a hidden one, cap 50: the cap comes first, so that the hidden weight is exactly 0."""
    q, k = torch.ones(1, 1, 1, 1).double(), torch.tensor([-49.0, -49.5, 0.0]).double().reshape(1, 1, 3, 1)
    mask = torch.tensor([0.0, 0.0, -torch.inf])
    weight = attention(q, k, torch.eye(3).double()[None, None], mask=mask, softcap=50.0, scale=1.0)[0, 0, 0]
    capped = 50 * torch.tanh(torch.tensor([-49.0, -49.5]).double() / 50)
    torch.testing.assert_close(weight[:2], torch.softmax(capped, 0))
    assert weight[2] == 0


@pytest.mark.parametrize("score", [0.01, 3.0, 1e4, -1e4, 1e30])
def test_the_cap_bounds_scores(score):
    """A single key: lse is its score, c · tanh(s / c), and the gradient 1 − tanh²."""
    q = torch.full((1, 1, 1, 1), score, dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    _, lse = attention(q, one, one, softcap=5.0, scale=1.0, return_lse=True)
    lse.sum().backward()
    np.testing.assert_allclose(lse.item(), 5 * np.tanh(score / 5), rtol=1e-12)
    np.testing.assert_allclose(q.grad.item(), 1 - np.tanh(score / 5) ** 2, rtol=1e-9, atol=1e-15)


def test_a_sink_takes_weight_and_brings_nothing(normal):
    """Logit 20 against scores near 0: weights nearly vanish; a sink of 0 counts too; one of −inf does not."""
    q, k, v = (normal(1, 3, 7, 3) for _ in "qkv")
    ones = torch.ones_like(v)
    sinks = torch.tensor([20.0, 0.0, -torch.inf]).double()
    total, lse = attention(q, k, ones, sinks=sinks, return_lse=True)
    without = attention(q, k, ones, return_lse=True)[1]
    assert total[0, 0].max() < 1e-5
    assert ((total[0, 1] > 0.3) & (total[0, 1] < 0.97)).all()
    torch.testing.assert_close(total[0, 2], ones[0, 2])
    torch.testing.assert_close(lse, torch.logaddexp(without, sinks[:, None]))


def test_a_row_that_sees_the_sink_alone(normal):
    """Output 0 and lse the sink; its gradient is 1, and no other is touched. With no key at all too."""
    sinks = SINKS.clone().requires_grad_()
    for t_q, t_kv, blind in ((5, 3, 2), (3, 0, 3)):
        q, k, v = (x.requires_grad_() for x in inputs(normal, t_q, t_kv))
        out, lse = attention(q, k, v, is_causal=True, sinks=sinks, return_lse=True)
        assert (out[:, :, :blind] == 0).all()
        assert (lse[:, :, :blind] == SINKS[:, None]).all()
        grads = torch.autograd.grad(out[:, :, :blind].sum() + lse[:, :, :blind].sum(), (sinks, q, k, v))
        assert (grads[0] == B * blind).all()
        assert all((grad == 0).all() for grad in grads[1:])


# Heads, strides, sizes


def test_grouped_heads_are_contiguous(normal):
    """4 query heads on 2 key heads use [0, 0, 1, 1]."""
    q, k, v = normal(1, 4, 5, 3), normal(1, 2, 5, 3), normal(1, 2, 5, 3)
    out = attention(q, k, v)
    for head, group in enumerate([0, 0, 1, 1]):
        one = attention(q[:, head : head + 1], k[:, group : group + 1], v[:, group : group + 1])
        torch.testing.assert_close(out[:, head], one[:, 0])


@pytest.mark.parametrize(("b", "n_kv_heads"), [(1, 7), (7, 1), (3, 5), (5, 3)])
def test_lanes_that_do_not_go_through_one_product(normal, b, n_kv_heads, monkeypatch):
    """Many heads or many sequences, cut into stacks of two: the same."""
    from attnbook.tiled import prepare

    q, k, v = normal(b, 2 * n_kv_heads, 5, 3), normal(b, n_kv_heads, 7, 3), normal(b, n_kv_heads, 7, 2)
    options = {"mask": normal(b, 1, 5, 7), "alibi_slopes": normal(b, 2 * n_kv_heads), "sinks": normal(2 * n_kv_heads)}
    expected = attention(q, k, v, **options)
    monkeypatch.setattr(prepare, "SCORES", 2 * 2 * 5 * 7)
    torch.testing.assert_close(attention(q, k, v, **options), expected)
    bias = options.pop("mask").expand(b, 2 * n_kv_heads, 5, 7)
    np.testing.assert_allclose(expected, exact(q, k, v, bias=bias, **options)["out"].astype(float), rtol=1e-10)


def test_views_equal_copies(normal):
    """Transposed, sliced and expanded inputs give what their contiguous copies give, gradients too."""
    base = normal(2, 11, 3, 14).requires_grad_()
    one = normal(11, 1, 5).requires_grad_()
    weight = normal(2, 3, 11, 5)

    def gradients(copy):
        x = base.transpose(1, 2)
        q, k, v = x[..., ::2], x[..., 7:], one.transpose(0, 1).expand(2, 3, 11, 5)
        q, k, v = (x.contiguous() if copy else x for x in (q, k, v))
        out = attention(q, k, v, is_causal=True, tile_q=4, tile_k=4)
        return out, *torch.autograd.grad((out * weight).sum(), (base, one))

    for got, expected in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("q_shape", "kv_shape"),
    [((0, 2, 3, 5), (0, 2, 3, 5)), ((1, 2, 0, 5), (1, 2, 3, 5)), ((1, 2, 3, 5), (1, 2, 0, 5)), ((1, 0, 3, 5),) * 2],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_sizes(q_shape, kv_shape, dtype):
    """Batch 0, t_q 0, t_kv 0 and no heads are legal, forward and backward; without keys the output is 0, lse −inf."""
    q, k, v = (torch.ones(shape, dtype=dtype, requires_grad=True) for shape in (q_shape, kv_shape, kv_shape))
    for options in ({}, {"is_causal": True}, {"is_causal": True, "window": 2}, {"mask": torch.tensor(True)}):
        out, lse = attention(q, k, v, return_lse=True, **options)
        assert tuple(out.shape) == q_shape
        assert tuple(lse.shape) == q_shape[:-1]
        assert (out == 0).all()
        assert (lse == -torch.inf).all()
        for x, grad in zip((q, k, v), torch.autograd.grad(out.sum(), (q, k, v)), strict=True):
            assert grad.shape == x.shape
            assert (grad == 0).all()


def test_head_dim_zero_with_a_scale_is_the_mean(normal):
    """Scores of no components are all 0."""
    q, v = torch.ones(1, 1, 2, 0).double(), normal(1, 1, 2, 3)
    torch.testing.assert_close(attention(q, q, v, scale=1.0)[0, 0, 0], v[0, 0].mean(0))


def test_half_precision_accumulates_in_float32():
    """4099 equal weights in float16 average ones to exactly 1: float16 sums stop counting at 2048."""
    q, k, v = torch.zeros(1, 1, 1, 3).half(), torch.zeros(1, 1, 4099, 3).half(), torch.ones(1, 1, 4099, 3).half()
    assert attention(q, k, v).tolist() == [[[[1.0, 1.0, 1.0]]]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large_scores_are_finite(dtype):
    """Scores beyond the largest float16 (300 · 300 · 7) are calculated in float32."""
    x = torch.full((1, 1, 5, 7), 300.0, dtype=dtype)
    assert (attention(x, x, x) == 300).all()


def test_without_a_gradient_it_is_attention_forward(normal):
    """What a custom operator calls is what the function gives, bit for bit, recorded for backward or not."""
    q, k, v = inputs(normal)
    out, lse = attention_forward(q, k, v, None, SLOPES, SINKS, is_causal=True, window=3, softcap=2.0, scale=0.3)
    options = {"alibi_slopes": SLOPES, "sinks": SINKS, "is_causal": True, "window": 3, "softcap": 2.0, "scale": 0.3}
    for x in (q, q.clone().requires_grad_()):
        got = attention(x, k, v, return_lse=True, **options)
        assert torch.equal(got[0], out)
        assert torch.equal(got[1], lse)
        assert torch.equal(attention(x, k, v, **options), out)
