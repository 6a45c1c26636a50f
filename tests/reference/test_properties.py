"""What holds for any input that hypothesis draws: sums, convexity, order of keys, causality, groups, splits."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook.reference import attention, attention_varlen, merge
from attnbook.reference.online import online_average

DRAWS = settings(max_examples=60, deadline=None)
ROUNDING = 1e-11  # of float64 sums of some tens of numbers of a few units


@st.composite
def calls(draw, *, causal=None, sinks=None, min_keys=1):
    """q, k, v and options: any sizes, scores from tame to wild, any mask, each option there or not."""
    group, n_kv_heads, b = (draw(st.integers(1, 3)) for _ in range(3))
    t_q, t_kv, d, d_v = (
        draw(st.integers(1, 9)),
        draw(st.integers(min_keys, 11)),
        *(draw(st.integers(1, 5)) for _ in "dv"),
    )
    n_heads = group * n_kv_heads
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([0.0, 0.1, 1.0, 30.0]))
    q = size * rng.standard_normal((b, n_heads, t_q, d))
    k, v = (rng.standard_normal((b, n_kv_heads, t_kv, n)) for n in (d, d_v))
    options = {"is_causal": draw(st.booleans()) if causal is None else causal}
    if options["is_causal"] and draw(st.booleans()):
        options["window"] = draw(st.integers(1, 12))
    if draw(st.booleans()):
        options["mask"] = rng.random((b, n_heads, t_q, t_kv)) < draw(st.sampled_from([0.2, 0.8]))
    elif draw(st.booleans()):
        options["mask"] = rng.standard_normal((t_q, t_kv))
    if draw(st.booleans()):
        options["softcap"] = draw(st.floats(0.1, 50))
    if draw(st.booleans()):
        options["alibi_slopes"] = rng.random(n_heads)
    if draw(st.booleans()) if sinks is None else sinks:
        options["sinks"] = rng.standard_normal(n_heads)
    return q, k, v, options


@DRAWS
@given(calls(sinks=False))
def test_weights_sum_to_one_or_to_nothing(call):
    """With v = 1 a row that sees a key gives 1, another 0; which one, lse says."""
    q, k, v, options = call
    total, lse = attention(q, k, np.ones_like(v), return_lse=True, **options)
    np.testing.assert_allclose(total, np.broadcast_to((lse > -np.inf)[..., None], total.shape), rtol=0, atol=ROUNDING)


@DRAWS
@given(calls(sinks=True))
def test_weights_with_a_sink_sum_to_less_than_one(call):
    """What is missing to 1 is the sink's share, exp(sink − lse)."""
    q, k, v, options = call
    total, lse = attention(q, k, np.ones_like(v), return_lse=True, **options)
    share = np.exp(options["sinks"][:, None] - lse)[..., None]
    assert (total <= 1 + ROUNDING).all()
    np.testing.assert_allclose(total + share, 1, rtol=0, atol=ROUNDING)


@DRAWS
@given(calls())
def test_no_component_leaves_the_range_of_the_values(call):
    """Without a sink an output lies between the smallest and the largest value; with one, or none seen, also at 0."""
    q, k, v, options = call
    out = attention(q, k, v, **options)
    group = q.shape[1] // k.shape[1]
    low, high = (f(v, axis=2, keepdims=True).repeat(group, axis=1) for f in (np.min, np.max))
    if "sinks" in options or "mask" in options or options["is_causal"]:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    assert (low - ROUNDING <= out).all()
    assert (out <= high + ROUNDING).all()


@DRAWS
@given(calls(causal=False), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(call, random):
    """Keys, values and the mask's columns in another order: the same output. (Slopes know positions: left out.)"""
    q, k, v, options = call
    options.pop("alibi_slopes", None)
    turn = list(range(k.shape[2]))
    random.shuffle(turn)
    turned = options | ({"mask": options["mask"][..., turn]} if "mask" in options else {})
    out, lse = attention(q, k, v, return_lse=True, **options)
    for got, expected in zip(
        attention(q, k[:, :, turn], v[:, :, turn], return_lse=True, **turned), (out, lse), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=ROUNDING, atol=ROUNDING)


@DRAWS
@given(calls(causal=True), st.data())
def test_the_future_moves_nothing(call, data):
    """Any change of key and value j leaves every query that lies before it as it was, bit for bit."""
    q, k, v, options = call
    t_q, t_kv = q.shape[2], k.shape[2]
    j = data.draw(st.integers(0, t_kv - 1))
    before = attention(q, k, v, return_lse=True, **options)
    k, v = k.copy(), v.copy()
    k[:, :, j] += 5.0
    v[:, :, j] -= 5.0
    past = max(0, j - (t_kv - t_q))  # queries i with j > i + t_kv − t_q
    for was, now in zip(before, attention(q, k, v, return_lse=True, **options), strict=True):
        np.testing.assert_array_equal(now[:, :, :past], was[:, :, :past])


@DRAWS
@given(calls())
def test_groups_are_repeated_heads(call):
    """Grouped heads give what the key and value heads repeated give, each as often as it is used, bit for bit."""
    q, k, v, options = call
    group = q.shape[1] // k.shape[1]
    out = attention(q, k, v, **options)
    np.testing.assert_array_equal(out, attention(q, k.repeat(group, axis=1), v.repeat(group, axis=1), **options))


@DRAWS
@given(calls(sinks=False, min_keys=2), st.data())
def test_merged_splits_are_the_whole(call, data):
    """Keys cut in two anywhere, each part alone (its window and slopes as a mask), merged by lse: the whole."""
    q, k, v, options = call
    t_q, t_kv = q.shape[2], k.shape[2]
    cut = data.draw(st.integers(0, t_kv))
    distance = np.arange(t_q)[:, None] + t_kv - t_q - np.arange(t_kv)
    mask = np.zeros((1, 1, t_q, t_kv))
    if options.pop("is_causal"):
        mask = np.where((distance >= 0) & (distance < options.pop("window", 99)), mask, -np.inf)
    if "mask" in options:
        given_ = options.pop("mask")
        mask = mask + (np.where(given_, 0, -np.inf) if given_.dtype == bool else given_)
    if "alibi_slopes" in options:
        mask = mask - options.pop("alibi_slopes")[:, None, None] * np.abs(distance)
    parts = [
        attention(q, k[:, :, part], v[:, :, part], mask=mask[..., part], return_lse=True, **options)
        for part in (slice(None, cut), slice(cut, None))
    ]
    merged, expected = merge(*parts[0], *parts[1]), attention(*call[:3], mask=mask, return_lse=True, **options)
    for got, whole in zip(merged, expected, strict=True):
        np.testing.assert_allclose(got, whole, rtol=ROUNDING, atol=ROUNDING)


@DRAWS
@given(calls(sinks=True))
def test_a_sink_is_one_more_key_of_value_zero(call):
    """Its score is the sink, whatever the query: attention without it, merged with (0, sink) once."""
    q, k, v, options = call
    sinks = options["sinks"]
    out, lse = attention(q, k, v, return_lse=True, **options)
    rest, rest_lse = attention(q, k, v, return_lse=True, **options | {"sinks": None})
    merged, together = merge(rest, rest_lse, np.zeros_like(rest), np.broadcast_to(sinks[:, None], rest_lse.shape))
    np.testing.assert_allclose(out, merged, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_allclose(lse, together, rtol=ROUNDING, atol=ROUNDING)


@DRAWS
@given(calls(), st.data())
def test_packed_sequences_are_a_batch(call, data):
    """A batch packed along one axis, each sequence cut to a length of its own."""
    q, k, v, options = call
    options.pop("mask", None)
    lengths = [[data.draw(st.integers(0, x.shape[2])) for _ in range(x.shape[0])] for x in (q, k)]
    packed = [
        np.concatenate([x[n, :, :length].swapaxes(0, 1) for n, length in enumerate(of)])
        for x, of in zip((q, k, v), (lengths[0], lengths[1], lengths[1]), strict=True)
    ]
    ends = [np.cumsum([0, *of]) for of in lengths]
    out = attention_varlen(*packed, *ends, **options)
    for n, (t_q, t_kv) in enumerate(zip(*lengths, strict=True)):
        one = attention(q[n : n + 1, :, :t_q], k[n : n + 1, :, :t_kv], v[n : n + 1, :, :t_kv], **options)
        np.testing.assert_allclose(
            out[ends[0][n] : ends[0][n + 1]].swapaxes(0, 1), one[0], rtol=ROUNDING, atol=ROUNDING
        )


@DRAWS
@given(calls(sinks=False), st.integers(1, 5))
def test_a_pass_over_blocks_is_the_whole(call, block):
    """The online average over the same scores gives the same output and lse."""
    q, k, v, options = call
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    score = q @ k.mT / q.shape[-1] ** 0.5
    mask = options.get("mask")
    if mask is not None:
        score = np.where(mask, score, -np.inf) if mask.dtype == bool else score + mask
    expected = attention(q, k, v, mask=mask, return_lse=True)
    for got, whole in zip(online_average(score, v, block=block), expected, strict=True):
        np.testing.assert_allclose(got, whole, rtol=ROUNDING, atol=ROUNDING)
