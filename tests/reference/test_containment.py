"""What is not finite stays where it may be seen: forward and backward, in every input, in rows and keys alike."""

import numpy as np
import pytest
import torch

from attnbook import tiled
from attnbook.reference import attention
from tests.tolerance import as_float64

T_Q, T_KV = 5, 7
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 2},
    "mask": {"mask": np.random.default_rng(3).random((2, 4, T_Q, T_KV)) < 0.5},
    "padding": {"mask": np.arange(T_KV) < 4, "is_causal": True},
    "everything": {
        "is_causal": True, "window": 3, "softcap": 2.0, "alibi_slopes": np.full(4, 0.3), "sinks": np.arange(4.0),
    },
}  # fmt: skip


def seen(options):
    """Which query may see which key, read off the weights of finite inputs: booleans (b, n_heads, t_q, t_kv)."""
    zeros = np.zeros((2, 4, T_Q, 3)), np.zeros((2, 2, T_KV, 3)), np.broadcast_to(np.eye(T_KV), (2, 2, T_KV, T_KV))
    return attention(*zeros, **{name: x for name, x in options.items() if name != "sinks"}) > 0


def rounding(make):
    """What another order of summation may change in outputs and lse of a few units: some last digits of the dtype."""
    return 32 * torch.finfo(torch.as_tensor(make([0.0])).dtype).eps


def inputs(normal):
    """Two sequences, four query heads on two key heads."""
    return normal((2, 4, T_Q, 3)), normal((2, 2, T_KV, 3)), normal((2, 2, T_KV, 5))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("place", ["k", "v"])
def test_a_key_reaches_only_those_who_may_see_it(make, normal, bad, name, place):
    """Every other row is what it was; those that may see a NaN have one."""
    options = {key: make(x) if isinstance(x, np.ndarray) else x for key, x in OPTIONS[name].items()}
    q, k, v = inputs(normal)
    spoilt = {"k": k.copy(), "v": v.copy()}
    spoilt[place][1, 1, 3] = bad  # key 3 of the second sequence, seen by heads 2 and 3
    before = attention(*(make(x) for x in (q, k, v)), return_lse=True, **options)
    with np.errstate(invalid="ignore"):
        after = attention(make(q), make(spoilt["k"]), make(spoilt["v"]), return_lse=True, **options)
    reached = np.zeros((2, 4, T_Q), bool)
    reached[1, 2:] = seen(OPTIONS[name])[1, 2:, :, 3]
    assert reached.any()
    for was, now in zip(map(as_float64, before), map(as_float64, after), strict=True):
        np.testing.assert_allclose(now[~reached], was[~reached], rtol=0, atol=rounding(make))
        if np.isnan(bad) and (place == "k" or now.ndim == 4):
            assert np.isnan(now[reached]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_query_reaches_its_own_row_alone(make, normal, bad):
    """A NaN or inf in row 2 of one head."""
    q, k, v = inputs(normal)
    before = as_float64(attention(*(make(x) for x in (q, k, v)), is_causal=True))
    q[0, 1, 2] = bad
    with np.errstate(invalid="ignore"):
        after = as_float64(attention(*(make(x) for x in (q, k, v)), is_causal=True))
    assert np.isnan(after[0, 1, 2]).all()
    after[0, 1, 2] = before[0, 1, 2]
    np.testing.assert_allclose(after, before, rtol=0, atol=rounding(make))


def test_a_value_of_infinity_that_is_seen_is_an_infinity(normal):
    """The formula is followed over the keys that are seen: a positive share of inf is inf, in that component."""
    q, k, v = inputs(normal)
    v[:, :, 2, 1] = np.inf
    out = attention(q, k, v)
    assert (out[..., 1] == np.inf).all()
    assert np.isfinite(out[..., [0, 2, 3, 4]]).all()


def gradients(q, k, v, **options):
    """Of Σ out + Σ lse, in q, k, v."""
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    options = {key: torch.tensor(x) if isinstance(x, np.ndarray) else x for key, x in options.items()}
    out, lse = attention(*leaves, return_lse=True, **options)
    return [grad.numpy() for grad in torch.autograd.grad(out.sum() + lse.sum(), leaves)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("place", ["k", "v"])
def test_a_key_reaches_only_gradients_that_share_a_row_with_it(normal, bad, name, place):
    """Those of the queries that may see it, and of the keys that such a query sees too; all others are what they were.

    More can't be kept away: the gradient of a score depends on every value that its query sees.
    """
    q, k, v = inputs(normal)
    clean, spoilt = ({"k": k.copy(), "v": v.copy()} for _ in range(2))
    clean[place][1, 1, 3], spoilt[place][1, 1, 3] = 0.0, bad
    rows = np.zeros((2, 4, T_Q), bool)
    rows[1, 2:] = seen(OPTIONS[name])[1, 2:, :, 3]
    columns = (seen(OPTIONS[name]) & rows[..., None]).any(2).reshape(2, 2, 2, T_KV).any(2)  # of each key head
    expected = gradients(q, clean["k"], clean["v"], **OPTIONS[name])
    with np.errstate(invalid="ignore"):
        got = gradients(q, spoilt["k"], spoilt["v"], **OPTIONS[name])
    for x, y, reached in zip(got, expected, (rows, columns, columns), strict=True):
        np.testing.assert_allclose(x[~reached], y[~reached], rtol=1e-10, atol=1e-12)
    if np.isnan(bad) or place == "v":
        assert not np.isfinite(got[0][rows]).any()


def test_padding_that_is_never_seen_reaches_no_gradient(normal):
    """A cache padded with NaN: everything is finite, and the padding's own gradients are exactly 0."""
    q, k, v = inputs(normal)
    k[:, :, 4:], v[:, :, 4:] = np.nan, np.nan
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    out, lse = attention(*leaves, mask=torch.arange(T_KV) < 4, return_lse=True)
    (out.sum() + lse.sum()).backward()
    assert all(torch.isfinite(x).all() for x in (out, lse, *(leaf.grad for leaf in leaves)))
    assert all((leaf.grad[:, :, 4:] == 0).all() for leaf in leaves[1:])
    short = attention(torch.tensor(q), torch.tensor(k[:, :, :4]), torch.tensor(v[:, :, :4]))
    torch.testing.assert_close(out, short, rtol=1e-12, atol=1e-12)


def test_a_query_reaches_the_gradients_of_keys_it_may_see(normal):
    """And of no other: NaN in row 0, which sees keys 0 to 2 of its group's head."""
    q, k, v = inputs(normal)
    q[0, 0, 0] = np.nan
    d_q, d_k, d_v = gradients(q, k, v, is_causal=True)
    for grad, reached in ((d_q, (0, 0, slice(0, 1))), (d_k, (0, 0, slice(0, 3))), (d_v, (0, 0, slice(0, 3)))):
        assert np.isnan(grad[reached]).all()
        rest = grad.copy()
        rest[reached] = 0
        assert np.isfinite(rest).all()


def test_no_queries_and_garbage_keys():
    """t_q 0 with NaN in the keys: still an empty output."""
    q, k = torch.zeros(1, 2, 0, 3), torch.full((1, 2, 5, 3), torch.nan)
    out, lse = attention(q, k, k, return_lse=True)
    assert (tuple(out.shape), tuple(lse.shape)) == ((1, 2, 0, 3), (1, 2, 0))


def test_a_nan_in_an_added_mask_stays_in_its_row(normal):
    """It is a number that one row would add."""
    q, k, v = inputs(normal)
    mask = np.zeros((T_Q, T_KV))
    mask[2, 1] = np.nan
    out = attention(q, k, v, mask=mask)
    assert np.isnan(out[:, :, 2]).all()
    assert np.isfinite(np.delete(out, 2, axis=2)).all()


def test_what_comes_in_from_behind_is_not_contained():
    """A gradient of the output that is not finite: a limit of this implementation, which tiles and kernels don't have.

    Forward has seen finite numbers and multiplied by weights of 0, and so does its derivative: 0 · NaN. It stays in its
    component of d_v, but reaches there the keys that its query may not see.
    """
    q, k, v = (torch.randn(1, 1, 5, 3, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(3))
    d_out = torch.ones(1, 1, 5, 3)
    d_out[0, 0, 2, 1] = torch.nan  # of query 2, which sees keys 0 to 2
    for function, reached in ((attention, 5), (tiled.attention, 3)):
        d_q, d_k, d_v = torch.autograd.grad(function(q, k, v, is_causal=True), (q, k, v), d_out)
        nan = torch.zeros(1, 1, 5, 3, dtype=torch.bool)
        nan[..., :reached, 1] = True
        assert d_v.isnan().equal(nan)
        assert d_q.isnan().all(-1)[0, 0].tolist() == [False, False, True, False, False]
        assert d_k.isnan().all(-1)[0, 0].tolist() == [True, True, True, False, False]
