"""Windows, softcap, sinks and ALiBi."""

import functools
import math

import numpy as np
import pytest
import torch

import attnbook
from attnbook import reference
from tests.cases.ways import TORCH_WITH_LSE, WAYS, WITH_LSE, Known, normal, qkv, run

# Windows


def weights_of(way, q, k, **options):
    """The weights (b, n_heads, t_q, t_kv): what comes out where the value of key j is the j-th unit vector."""
    unit = torch.eye(k.shape[2], dtype=q.dtype).expand(*k.shape[:3], k.shape[2])
    return run(way, q, k, unit, **options)[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("window", "t_q", "t_kv"),
    [(4, 8, 8), (1, 8, 8), (8, 8, 8), (9, 8, 8), (2**40, 8, 8), (4, 3, 8), (4, 8, 3), (4, 1, 8), (1, 8, 3)],
)
def test_a_window_counts_the_keys_that_are_seen(window, t_q, t_kv, way):
    """transformers#39408: window 4, 8 tokens: row 7 sees exactly 4 keys; no row more, early ones fewer."""
    q, k, _ = qkv(t_q, t_kv)
    seen = (weights_of(way, q, k, is_causal=True, window=window) > 0).sum(-1)
    expected = [max(min(i + t_kv - t_q + 1, window), 0) for i in range(t_q)]
    assert seen.tolist() == [[expected] * 2] * 2


@functools.cache
def past_the_window(t, window):
    return Known(*qkv(t, b=1, heads=(2, 1), d=3), is_causal=True, window=window)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tile", [128, 256])
def test_a_window_is_kept_where_the_sequence_is_longer_than_a_tile(tile, way):
    """transformers#35924, flashinfer#3578: dropped in a refactor once, and not seen while t ≤ window."""
    window = 37
    t = window + tile + 1
    known = past_the_window(t, window)
    without = run("reference", *known.tensors, is_causal=True)[0]
    assert (without - torch.tensor(known.of(True)[0]["out"]))[0, :, -1].abs().max() > 1e-3
    known.check(way, gradients=way != "small tiles")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("t_q", "t_kv"), [(601, 601), (3, 601)])
def test_what_lies_before_the_window_has_no_weight(t_q, t_kv, way):
    """Whatever the keys before the last window hold, NaN too, the last queries come out the same to the last bit."""
    if way == "small tiles":
        t_q, t_kv = t_q % 100, t_kv % 100 + 30
    window = 7
    q, k, v = qkv(t_q, t_kv, b=1)
    options = {"is_causal": True, "window": window}
    last = slice(-2, None)
    before = run(way, q, k, v, **options)[0][:, :, last]
    k[:, :, : t_kv - window - 1] += 3
    v[:, :, : t_kv - window - 1] *= -5
    torch.testing.assert_close(run(way, q, k, v, **options)[0][:, :, last], before, rtol=0, atol=0)
    k[:, :, : t_kv - window - 1] = torch.nan
    torch.testing.assert_close(run(way, q, k, v, **options)[0][:, :, last], before, rtol=1e-6, atol=1e-6)


# Softcap


@pytest.mark.parametrize("way", WITH_LSE)
@pytest.mark.parametrize("kind", ["booleans", "-inf"])
def test_cap_then_mask(kind, way):
    """Logits −49, −49.5, −inf under a cap of 50: the hidden weight is exactly 0 (mask, then cap would leave some)."""
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([-49.0, -49.5, 100.0]).reshape(1, 1, 3, 1)
    mask = torch.tensor([True, True, False])
    mask = mask if kind == "booleans" else torch.where(mask, 0.0, -torch.inf)
    weights = weights_of(way, q, k, scale=1.0, softcap=50.0, mask=mask).flatten().tolist()
    odds = math.exp(50 * (math.tanh(-49 / 50) - math.tanh(-49.5 / 50)))
    assert weights[2] == 0
    assert weights[0] / weights[1] == pytest.approx(odds, rel=1e-5)


@pytest.mark.parametrize("way", TORCH_WITH_LSE)
@pytest.mark.parametrize("score", [0.0, 30.0, -60.0, 400.0, -1e30])
def test_large_scores_are_capped(score, way):
    """unsloth-zoo#593: c · tanh(x / c), never beyond c; the gradient has the factor 1 − tanh²."""
    cap = 30.0
    q = torch.full((1, 1, 1, 1), score, requires_grad=True)
    _, lse = run(way, q, torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1), scale=1.0, softcap=cap)
    lse.sum().backward()  # of one key, lse is its score
    assert lse.item() == pytest.approx(cap * math.tanh(score / cap), rel=1e-6)
    assert abs(lse.item()) <= cap
    assert q.grad.item() == pytest.approx(1 - math.tanh(score / cap) ** 2, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("way", WITH_LSE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_cap_on_large_scores_of_many_keys(dtype, way):
    """Scores in the hundreds under a cap, in float16 too: right, with gradients."""
    q, k, v = qkv(5, 7, dtype=dtype)
    Known(q * 8, k * 8, v, softcap=5.0).check(way)


@pytest.mark.parametrize("way", WITH_LSE)
def test_the_cap_is_not_on_what_is_added(way):
    """Mask, slopes and sinks are added after the cap: they may pass it."""
    q, k, v = qkv(5, 7)
    options = {
        "alibi_slopes": torch.tensor([2.0, 3.0]),
        "sinks": torch.tensor([4.0, -4.0]),
        "mask": normal(5, 7, seed=9),
    }
    Known(q, k, v, softcap=0.5, **options).check(way)


# Sinks


@pytest.mark.parametrize("way", WITH_LSE)
@pytest.mark.parametrize("sink", [20.0, -20.0, 0.0, 90.0, -90.0, 1e4, -torch.inf])
def test_a_sink_takes_weight(sink, way):
    """TransformerEngine#2541: beside scores near 0, a sink of 20 leaves nearly nothing, one of −20 nearly all."""
    q, k, _ = qkv(3, 4, heads=(1, 1))
    q = q * 0.01
    kept = weights_of(way, q, k, sinks=torch.tensor([sink])).sum(-1)
    score = (q.double() @ k.double().mT) * 5**-0.5
    expected = torch.softmax(torch.cat([score, torch.full((2, 1, 3, 1), sink).double()], -1), -1)[..., :-1].sum(-1)
    torch.testing.assert_close(kept.double(), expected, rtol=1e-5, atol=1e-38)


@pytest.mark.parametrize("way", TORCH_WITH_LSE)
@pytest.mark.parametrize("sink", [20.0, 0.0])
@pytest.mark.parametrize("times", [0.01, 30.0])
def test_a_sink_has_a_gradient(times, sink, way):
    """A sink of 0 can hide a dropped one where scores are large; where they are small it shows, and so does 20."""
    q, k, v = qkv(3, 4)
    known = Known(q * times, k, v, sinks=torch.tensor([sink, sink - 1.5]))
    _, _, grads = known.check(way)
    assert times > 1 or (grads["sinks"] != 0).all()
    out = torch.tensor(known.of(True)[0]["out"])
    dropped = run("reference", *known.tensors)[0]
    assert (out - dropped).abs().max() > (0.1 if times < 1 else 0)


@pytest.mark.parametrize("way", WITH_LSE)
def test_a_sink_of_minus_infinity_is_none(way):
    """Also in a row that sees no key: output 0, lse −inf."""
    q, k, v = qkv(3, 4)
    mask = torch.tensor([[True] * 4, [False] * 4, [True, False, True, True]])
    out, lse = run(way, q, k, v, mask=mask, sinks=torch.tensor([-torch.inf, -torch.inf]))
    plain, plain_lse = run(way, q, k, v, mask=mask)
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(lse, plain_lse)


@pytest.mark.parametrize("way", TORCH_WITH_LSE)
def test_a_sink_of_minus_infinity_has_no_nan_in_gradients(way):
    """Nothing is taken from a sink that takes nothing."""
    q, k, v = qkv(3, 4)
    sinks = torch.tensor([-torch.inf, 0.5])
    tensors = [x.requires_grad_() for x in (q, k, v, sinks)]
    out, lse = run(way, q, k, v, sinks=sinks, mask=torch.tensor([[True] * 4, [False] * 4, [True] * 4]))
    total = out.sum() + torch.where(lse.isfinite(), lse, 0.0).sum()
    for grad in torch.autograd.grad(total, tensors):
        assert grad.isfinite().all()
    assert torch.autograd.grad(run(way, q, k, v, sinks=sinks)[1].sum(), sinks)[0][0] == 0


# ALiBi


def test_slopes_of_eight_heads():
    """aprender#2143: ½, ¼ … 1/256, exactly, from either library."""
    expected = [2.0**-i for i in range(1, 9)]
    assert attnbook.alibi_slopes(8).tolist() == expected
    assert attnbook.alibi_slopes(8, like=torch.zeros(1)).tolist() == expected
    assert attnbook.alibi_slopes(8, like=torch.zeros(1, dtype=torch.bfloat16)).tolist() == expected


@pytest.mark.parametrize("n_heads", [1, 2, 3, 7, 12, 16, 20])
def test_slopes_of_any_number_of_heads(n_heads):
    """Positive, below 1, all different: each head forgets at its own speed."""
    slopes = attnbook.alibi_slopes(n_heads)
    assert len(set(slopes.tolist())) == n_heads
    assert ((slopes > 0) & (slopes < 1)).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_distant_keys_are_penalised(is_causal, way):
    """aprender#2143: with equal scores, weights fall with the distance, on both sides, by exp(−slope) a step."""
    q, k = torch.zeros(1, 8, 5, 4), torch.zeros(1, 8, 7, 4)
    slopes = torch.tensor(attnbook.alibi_slopes(8)).float()
    weights = weights_of(way, q, k, alibi_slopes=slopes, is_causal=is_causal)
    for i in range(5):
        own = i + 2
        row = weights[0, :, i]
        past = row[:, : own + 1]
        torch.testing.assert_close(past[:, :-1] / past[:, 1:], torch.exp(-slopes)[:, None].expand(8, own))
        future = row[:, own:]
        if is_causal:
            assert (future[:, 1:] == 0).all()
        else:
            torch.testing.assert_close(future[:, 1:] / future[:, :-1], torch.exp(-slopes)[:, None].expand(8, 6 - own))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "slopes",
    [torch.zeros(4), torch.tensor([[0.5, 0.1, 0.2, 0.0], [1.0, 0.3, 0.0, 7.0]]), torch.tensor([100.0, 1, 2, 3])],
)
def test_slopes_of_every_kind(slopes, way):
    """None at all, each sequence's own, and one so steep that only the query's own key is left."""
    Known(*qkv(5, 7, heads=(4, 2)), alibi_slopes=slopes, is_causal=True).check(way)


@pytest.mark.parametrize("way", WAYS)
def test_both_conventions_of_alibi_average_alike(way):
    """−m · distance and +m · key position differ by a constant a row, which softmax does not see under causality."""
    q, k, v = qkv(5, 7)
    slopes = torch.tensor([0.5, 0.25])
    bias = reference.alibi_bias(slopes, 5, 7, convention="position")
    out = run(way, q, k, v, mask=bias.expand(2, 5, 7).contiguous(), is_causal=True)[0]
    torch.testing.assert_close(out, run(way, q, k, v, alibi_slopes=slopes, is_causal=True)[0])


def test_slopes_at_a_great_distance_in_half_precision():
    """A distance is no half-precision number: float16 would confuse neighbours beyond 2 048, bfloat16 beyond 256."""
    for dtype in (torch.float16, torch.bfloat16):
        q, k = torch.zeros(1, 1, 1, 4, dtype=dtype), torch.zeros(1, 1, 3001, 4, dtype=dtype)
        v = torch.where(torch.arange(3001) % 2 == 0, 1.0, -1.0).to(dtype).reshape(1, 1, -1, 1)
        slopes = torch.tensor([1e-3])
        weight = np.exp(-1e-3 * np.arange(3000, -1, -1))
        expected = (weight * np.where(np.arange(3001) % 2 == 0, 1, -1)).sum() / weight.sum()
        for way in WAYS:
            if way in ("numpy", "small tiles"):
                continue
            out = run(way, q, k, v, alibi_slopes=slopes)[0]
            assert abs(out.item() - expected) < 2e-5, way
