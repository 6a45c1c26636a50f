"""What holds for any input that hypothesis draws, with tiles far smaller than the input."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook import reference
from attnbook.tiled import attention

DRAWS = settings(max_examples=40, deadline=None)
ROUNDING = 1e-11  # of float64 sums of some tens of numbers of a few units


@st.composite
def calls(draw, *, causal=None, sinks=None):
    """q, k, v and options: any sizes, scores from tame to wild, any mask, any tiles, each option there or not."""
    group, n_kv_heads, b = (draw(st.integers(1, 3)) for _ in range(3))
    t_q, t_kv, d, d_v = (draw(st.integers(1, n)) for n in (13, 13, 5, 5))
    n_heads = group * n_kv_heads
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q = draw(st.sampled_from([0.0, 0.1, 1.0, 30.0])) * normal(b, n_heads, t_q, d)
    k, v = normal(b, n_kv_heads, t_kv, d), normal(b, n_kv_heads, t_kv, d_v)
    options = {"is_causal": draw(st.booleans()) if causal is None else causal}
    if options["is_causal"] and draw(st.booleans()):
        options["window"] = draw(st.integers(1, 14))
    if draw(st.booleans()):
        options["mask"] = normal(b, n_heads, t_q, t_kv) > draw(st.sampled_from([-1.0, 1.0]))
    elif draw(st.booleans()):
        options["mask"] = normal(t_q, t_kv)
    if draw(st.booleans()):
        options["softcap"] = draw(st.floats(0.1, 50))
    if draw(st.booleans()):
        options["alibi_slopes"] = normal(n_heads)
    if draw(st.booleans()) if sinks is None else sinks:
        options["sinks"] = normal(n_heads)
    return q, k, v, options, {"tile_q": draw(st.integers(1, 6)), "tile_k": draw(st.integers(1, 6))}


@DRAWS
@given(calls())
def test_it_is_the_reference(call):
    """Output and lse, whatever is asked for."""
    q, k, v, options, tiles = call
    got = attention(q, k, v, return_lse=True, **options, **tiles)
    for x, y in zip(got, reference.attention(q, k, v, return_lse=True, **options), strict=True):
        torch.testing.assert_close(x, y, rtol=ROUNDING, atol=ROUNDING)


@DRAWS
@given(calls(sinks=False))
def test_weights_sum_to_one_or_to_nothing(call):
    """With v = 1 a row that sees a key gives 1, another 0; which one, lse says."""
    q, k, v, options, tiles = call
    total, lse = attention(q, k, torch.ones_like(v), return_lse=True, **options, **tiles)
    expected = (lse > -torch.inf).double()[..., None].expand(total.shape)
    torch.testing.assert_close(total, expected, rtol=0, atol=ROUNDING)


@DRAWS
@given(calls(causal=True), st.data())
def test_the_future_moves_nothing(call, data):
    """Any change of key and value j leaves every query that lies before it as it was, bit for bit."""
    q, k, v, options, tiles = call
    j = data.draw(st.integers(0, k.shape[2] - 1))
    past = max(0, j - (k.shape[2] - q.shape[2]))
    before = attention(q, k, v, return_lse=True, **options, **tiles)
    k, v = k.clone(), v.clone()
    k[:, :, j] += 5.0
    v[:, :, j] -= 5.0
    for was, now in zip(before, attention(q, k, v, return_lse=True, **options, **tiles), strict=True):
        assert torch.equal(now[:, :, :past], was[:, :, :past])


@DRAWS
@given(calls())
def test_groups_are_repeated_heads(call):
    """Grouped heads give what the key and value heads repeated give."""
    q, k, v, options, tiles = call
    group = q.shape[1] // k.shape[1]
    out = attention(q, k, v, **options, **tiles)
    repeated = (x.repeat_interleave(group, 1) for x in (k, v))
    torch.testing.assert_close(out, attention(q, *repeated, **options, **tiles), rtol=ROUNDING, atol=ROUNDING)


@DRAWS
@given(calls(causal=False), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(call, random):
    """Keys, values and the mask's columns in another order: the same output. (Slopes know positions: left out.)"""
    q, k, v, options, tiles = call
    options.pop("alibi_slopes", None)
    turn = list(range(k.shape[2]))
    random.shuffle(turn)
    turned = options | ({"mask": options["mask"][..., turn]} if "mask" in options else {})
    got = attention(q, k[:, :, turn], v[:, :, turn], return_lse=True, **turned, **tiles)
    for x, y in zip(got, attention(q, k, v, return_lse=True, **options, **tiles), strict=True):
        torch.testing.assert_close(x, y, rtol=ROUNDING, atol=ROUNDING)


@DRAWS
@given(calls(causal=True), st.data())
def test_the_last_queries_alone_give_the_same(call, data):
    """A cache: the last n queries against all keys give the last n rows of the whole."""
    q, k, v, options, tiles = call
    n = data.draw(st.integers(1, q.shape[2]))
    whole = attention(q, k, v, return_lse=True, **options, **tiles)
    if "mask" in options:
        options["mask"] = options["mask"][..., -n:, :]
    for x, y in zip(attention(q[:, :, -n:], k, v, return_lse=True, **options, **tiles), whole, strict=True):
        torch.testing.assert_close(x, y[:, :, -n:], rtol=ROUNDING, atol=ROUNDING)
