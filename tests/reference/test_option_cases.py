"""Window, cap, slopes and sinks, one by one: the inputs that broke other libraries, and answers worked out by hand."""

import numpy as np
import pytest
import torch

from attnbook.reference import attention, window_mask
from tests.tolerance import as_float64

B, H_Q, H_KV = 2, 6, 3
SLOPES = 2.0 ** -np.arange(1, H_Q + 1)


def inputs(make, normal, t_q, t_kv):
    """q, k, v with grouped heads and different sizes along every axis."""
    return make(normal((B, H_Q, t_q, 7))), make(normal((B, H_KV, t_kv, 7))), make(normal((B, H_KV, t_kv, 5)))


# The window


def test_a_window_of_four_shows_four_keys(normal):
    """t 8, window 4: row 7 sees exactly 4 keys, itself the last; earlier rows what there is."""
    weight = attention(normal((1, 1, 8, 3)), normal((1, 1, 8, 3)), np.eye(8)[None, None], is_causal=True, window=4)
    assert [np.flatnonzero(row).tolist() for row in weight[0, 0]] == [
        [0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7],
    ]  # fmt: skip


@pytest.mark.parametrize("t", [129, 257])
def test_a_window_far_shorter_than_the_sequence(normal, t):
    """The last row is its window alone, however long the past is, and an early row is not cut."""
    q, k, v = (normal((1, 1, t, 3)) for _ in "qkv")
    out = attention(q, k, v, is_causal=True, window=127)
    last = attention(q[:, :, -1:], k[:, :, -127:], v[:, :, -127:])
    np.testing.assert_allclose(out[:, :, -1:], last, rtol=1e-12)
    np.testing.assert_allclose(out[:, :, :127], attention(q, k, v, is_causal=True)[:, :, :127], rtol=1e-12)
    assert np.abs(out - attention(q, k, v, is_causal=True)).max() > 1e-3


def test_a_window_as_long_as_the_keys_hides_nothing(normal):
    """And a window of 1 gives every query its own value."""
    q, k, v = (normal((1, 1, 7, 3)) for _ in "qkv")
    np.testing.assert_array_equal(attention(q, k, v, is_causal=True, window=7), attention(q, k, v, is_causal=True))
    np.testing.assert_allclose(attention(q, k, v, is_causal=True, window=1), v, rtol=1e-15)


def test_one_new_token_sees_its_window(normal):
    """t_q 1, t_kv 5, window 2: the last two keys."""
    q, k, v = np.zeros((1, 1, 1, 3)), normal((1, 1, 5, 3)), normal((1, 1, 5, 3))
    out = attention(q, k, v, is_causal=True, window=2)
    np.testing.assert_allclose(out[0, 0, 0], v[0, 0, 3:].mean(0), rtol=1e-14)


def test_the_window_is_its_mask(normal):
    """It is `window_mask`, and is combined with a mask: both must allow."""
    q, k, v = normal((1, 1, 5, 3)), normal((1, 1, 7, 3)), normal((1, 1, 7, 3))
    out = attention(q, k, v, is_causal=True, window=3)
    np.testing.assert_array_equal(out, attention(q, k, v, mask=window_mask(5, 7, 3)))
    mask = normal((5, 7)) > 0
    both = attention(q, k, v, mask=mask, is_causal=True, window=3)
    np.testing.assert_array_equal(both, attention(q, k, v, mask=mask & window_mask(5, 7, 3)))


# The cap


def test_hidden_stays_hidden_under_a_cap():
    """Scores −49, −49.5 and a hidden one, cap 50: the cap comes first, so that the hidden weight is exactly 0."""
    q, k = np.ones((1, 1, 1, 1)), np.array([-49.0, -49.5, 0.0]).reshape(1, 1, 3, 1)
    mask = np.array([0.0, 0.0, -np.inf])
    weight = attention(q, k, np.eye(3)[None, None], mask=mask, softcap=50.0, scale=1.0)[0, 0, 0]
    capped = 50 * np.tanh(np.array([-49.0, -49.5]) / 50)
    np.testing.assert_allclose(weight[:2], np.exp(capped) / np.exp(capped).sum(), rtol=1e-12)
    assert weight[2] == 0


@pytest.mark.parametrize("score", [0.01, 3.0, 1e4, -1e4, 1e30])
def test_the_cap_bounds_scores(score):
    """c · tanh(s / c): near 0 the score itself, far away ±c, however large; its slope is 1 − tanh²."""
    q = torch.tensor(score, dtype=torch.float64).reshape(1, 1, 1, 1).requires_grad_()
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    _, lse = attention(q, one, one, softcap=5.0, scale=1.0, return_lse=True)  # a single key: lse is its score
    lse.backward(one[0])
    assert abs(lse.item()) <= 5
    np.testing.assert_allclose(lse.item(), 5 * np.tanh(score / 5), rtol=1e-12)
    np.testing.assert_allclose(q.grad.item(), 1 - np.tanh(score / 5) ** 2, rtol=1e-9)


def test_the_cap_comes_after_the_scale_and_before_what_is_added(normal):
    """Both orders that others use give other numbers."""
    q, k = np.full((1, 1, 1, 4), 3.0), np.stack([np.ones(4), np.zeros(4)])[None, None]
    v, bias = np.array([[1.0], [0.0]])[None, None], np.array([-5.0, 0.0])
    weight = attention(q, k, v, mask=bias, softcap=4.0).item()
    score = 4 * np.tanh(6 / 4) - 5
    np.testing.assert_allclose(weight, 1 / (1 + np.exp(-score)), rtol=1e-12)
    assert abs(weight - 1 / (1 + np.exp(-4 * np.tanh((6 - 5) / 4)))) > 0.1  # capped together with the bias
    assert abs(weight - 1 / (1 + np.exp(-(4 * np.tanh(12 / 4) / 2 - 5)))) > 0.001  # capped before the scale


# The slopes


def test_slopes_favour_what_is_near():
    """Equal scores, slope ½: the weights fall by e^−½ for each position, to both sides where both are seen."""
    q, k = np.zeros((1, 1, 3, 2)), np.zeros((1, 1, 3, 2))
    weight = attention(q, k, np.eye(3)[None, None], alibi_slopes=np.array([0.5]))[0, 0]
    np.testing.assert_allclose(weight[0, 1:] / weight[0, :-1], np.exp(-0.5), rtol=1e-12)
    np.testing.assert_allclose(weight[1, 0], weight[1, 2], rtol=1e-12)
    np.testing.assert_allclose(weight[2, 0] / weight[2, 2], np.exp(-1.0), rtol=1e-12)


def test_distance_counts_from_the_end():
    """One query against five keys is the last position: distances 4, 3, 2, 1, 0."""
    k = np.zeros((1, 1, 5, 2))
    weight = attention(k[:, :, :1], k, np.eye(5)[None, None], alibi_slopes=np.array([1.0]))[0, 0, 0]
    np.testing.assert_allclose(np.log(weight[4] / weight), [4, 3, 2, 1, 0], rtol=1e-12, atol=1e-12)


def test_each_head_has_its_slope(normal):
    """Slope h serves head h; slopes of shape (b, h) serve each sequence; slopes of 0 change nothing."""
    q, k, v = inputs(np.asarray, normal, 5, 5)
    both = np.stack([SLOPES, SLOPES[::-1]])
    out = attention(q, k, v, alibi_slopes=both)
    for n in range(B):
        for head in range(H_Q):
            g = head // 2
            one = attention(
                q[n : n + 1, head : head + 1], k[n : n + 1, g : g + 1], v[n : n + 1, g : g + 1],
                alibi_slopes=both[n, head : head + 1],
            )  # fmt: skip
            np.testing.assert_allclose(out[n, head], one[0, 0], rtol=1e-12)
    np.testing.assert_array_equal(attention(q, k, v, alibi_slopes=0 * SLOPES), attention(q, k, v))
    assert np.abs(attention(q, k, v, alibi_slopes=SLOPES) - attention(q, k, v)).max() > 0.01


def test_a_key_is_as_far_after_as_before(normal):
    """The bias of Press et al. (slope · key position) gives the same weights where only the past is seen."""
    q, k, v = (normal((1, 2, 7, 3)) for _ in "qkv")
    slopes = np.array([0.5, 0.25])
    ours = attention(q, k, v, alibi_slopes=slopes, is_causal=True)
    theirs = attention(q, k, v, mask=slopes[:, None, None] * np.arange(7.0), is_causal=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


# The sinks


def test_a_sink_takes_weight_and_brings_nothing(normal):
    """Logit 20 against scores near 0: weights nearly vanish, and what they sum to is known from lse."""
    q, k = normal((1, 2, 5, 3)), normal((1, 2, 7, 3))
    ones = np.ones((1, 2, 7, 1))
    without = attention(q, k, ones, return_lse=True)[1]
    total, lse = attention(q, k, ones, sinks=np.array([20.0, 0.0]), return_lse=True)
    assert total[0, 0].max() < 1e-6
    assert (total[0, 1] > 0.5).all()
    np.testing.assert_allclose(lse, np.logaddexp(without, np.array([[20.0], [0.0]])), rtol=1e-12)
    np.testing.assert_allclose(total[..., 0], np.exp(without - lse), rtol=1e-12)


def test_a_sink_of_zero_is_not_no_sink(normal):
    """Its weight is e⁰ against the others; only −inf is none at all."""
    q, k, v = (normal((1, 2, 5, 3)) for _ in "qkv")
    assert np.abs(attention(q, k, v, sinks=np.zeros(2)) - attention(q, k, v)).max() > 0.05
    np.testing.assert_allclose(attention(q, k, v, sinks=np.full(2, -np.inf)), attention(q, k, v), rtol=1e-14)


def test_a_sink_is_neither_scaled_nor_capped_nor_masked():
    """One key of score 0 against a sink of 3: weight 1 / (1 + e³), whatever the options."""
    zero, one, sink = np.zeros((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), np.array([3.0])
    for options in ({}, {"scale": 7.0}, {"softcap": 2.0}, {"is_causal": True, "window": 1}, {"alibi_slopes": sink}):
        out = attention(zero, one, one, sinks=sink, **options)
        np.testing.assert_allclose(out.item(), 1 / (1 + np.exp(3)), rtol=1e-12)


def test_a_row_that_sees_the_sink_alone(make, normal):
    """Output 0 and lse the sink; its gradient is 1, and no other is touched."""
    q, k, v = inputs(make, normal, 5, 3)
    sinks = np.linspace(-1, 2, H_Q)
    out, lse = attention(q, k, v, is_causal=True, sinks=make(sinks), return_lse=True)
    assert (as_float64(out)[:, :, :2] == 0).all()
    assert (as_float64(lse)[:, :, :2] == as_float64(make(sinks))[:, None]).all()
    q, k, v = (torch.randn(1, 2, t, 3, requires_grad=True) for t in (5, 3, 3))
    given = torch.zeros(2, requires_grad=True)
    out, lse = attention(q, k, v, is_causal=True, sinks=given, return_lse=True)
    (out[:, :, :2].sum() + lse[:, :, :2].sum()).backward()
    assert given.grad.tolist() == [2.0, 2.0]
    assert all((x.grad == 0).all() for x in (q, k, v))


def test_sinks_without_keys(make):
    """t_kv 0: output 0, lse the sink."""
    q, none = make(np.ones((1, 2, 3, 5))), make(np.ones((1, 2, 0, 5)))
    out, lse = attention(q, none, none, sinks=make(np.array([1.0, -2.0])), return_lse=True)
    assert (as_float64(out) == 0).all()
    assert as_float64(lse).tolist() == [[[1.0] * 3, [-2.0] * 3]]


def test_a_sink_has_a_gradient():
    """−weight of the sink times what the row gives: pushing it up takes from the output."""
    q, k = torch.zeros(1, 1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, 3, 1, dtype=torch.float64)
    sink = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    attention(q, k, torch.ones_like(k), sinks=sink).sum().backward()  # out = 3 / (3 + e^sink)
    np.testing.assert_allclose(sink.grad.item(), -3 / 16, rtol=1e-12)
