"""Packed sequences: each as if it were alone, nothing beyond the last, and every option inside its own sequence."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference import attention, attention_varlen
from tests.tolerance import as_float64, assert_right, plain, truth

H_Q, H_KV, D, D_V = 4, 2, 7, 5
CU_Q = [0, 5, 5, 8, 19, 21]  # lengths 5, 0, 3, 11, 2
CU_K = [0, 7, 10, 10, 21, 28]  # lengths 7, 3, 0, 11, 7
T_Q, T_KV = 23, 29  # two rows of q and one of k belong to no sequence

OPTIONS = {
    "none": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 3},
    "slopes": {"alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625])},
    "slopes of each sequence": {"alibi_slopes": np.random.default_rng(1).random((5, H_Q)), "is_causal": True},
    "booleans": {"mask": np.random.default_rng(2).random((H_Q, T_Q, T_KV)) < 0.7},
    "bias": {"mask": np.random.default_rng(2).standard_normal((T_Q, T_KV)), "is_causal": True},
    "hidden keys": {"mask": np.random.default_rng(5).random(T_KV) < 0.7},
    "sinks": {"sinks": np.array([-1.0, 0.0, 1.0, 5.0])},
    "all": {
        "mask": np.random.default_rng(2).random((T_Q, T_KV)) < 0.8, "is_causal": True, "window": 5, "softcap": 1.5,
        "alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625]), "sinks": np.array([-1.0, 0.0, 1.0, 5.0]), "scale": 0.6,
    },
}  # fmt: skip


def inputs(make, normal):
    """Packed q, k, v (t, h, d)."""
    return make(normal((T_Q, H_Q, D))), make(normal((T_KV, H_KV, D))), make(normal((T_KV, H_KV, D_V)))


def alone(n, x, ends):
    """Sequence n of a packed array, as a batch of one: (1, h, t, d)."""
    return x[ends[n] : ends[n + 1]].swapaxes(0, 1)[None]


def own(n, options):
    """The options of sequence n alone."""
    options = dict(options)
    if options.get("mask") is not None:
        shape = (1, H_Q, T_Q, T_KV)
        mask = options["mask"]
        mask = torch.broadcast_to(mask, shape) if isinstance(mask, torch.Tensor) else np.broadcast_to(mask, shape)
        options["mask"] = mask[:, :, CU_Q[n] : CU_Q[n + 1], CU_K[n] : CU_K[n + 1]]
    if options.get("alibi_slopes") is not None and options["alibi_slopes"].ndim == 2:
        options["alibi_slopes"] = options["alibi_slopes"][n]
    return options


@pytest.mark.parametrize("name", OPTIONS)
def test_each_sequence_is_as_if_alone(make, normal, name):
    """In every dtype, bit for bit; an empty sequence has no row, one without keys gives zeros, as does the rest."""
    options = {key: make(x) if isinstance(x, np.ndarray) else x for key, x in OPTIONS[name].items()}
    q, k, v = inputs(make, normal)
    out, lse = attention_varlen(q, k, v, CU_Q, CU_K, return_lse=True, **options)
    assert (tuple(out.shape), tuple(lse.shape)) == ((T_Q, H_Q, D_V), (T_Q, H_Q))
    assert out.dtype == q.dtype
    out, lse = as_float64(out), as_float64(lse)
    for n in range(5):
        one = attention(alone(n, q, CU_Q), alone(n, k, CU_K), alone(n, v, CU_K), return_lse=True, **own(n, options))
        rows = slice(CU_Q[n], CU_Q[n + 1])
        np.testing.assert_array_equal(out[rows].swapaxes(0, 1), as_float64(one[0])[0])
        np.testing.assert_array_equal(lse[rows].T, as_float64(one[1])[0])
    assert (out[21:] == 0).all()
    assert (lse[21:] == -np.inf).all()


@pytest.mark.parametrize("name", OPTIONS)
def test_right_by_the_block_diagonal_mask(normal, name):
    """The truth of one long sequence in which a query sees its own sequence alone; slopes and windows by position."""
    q, k, v = (x.astype(np.float32) for x in inputs(np.asarray, normal))
    out = attention_varlen(q, k, v, CU_Q, CU_K, **OPTIONS[name])
    of_q, of_k = (np.searchsorted(cu, np.arange(t), side="right") for cu, t in ((CU_Q, T_Q), (CU_K, T_KV)))
    ends_q, ends_k = np.array([*CU_Q[1:], T_Q]), np.array([*CU_K[1:], T_KV])
    ahead = np.arange(T_Q)[:, None] - ends_q[of_q - 1][:, None] - (np.arange(T_KV) - ends_k[of_k - 1])[None]
    options = dict(OPTIONS[name])
    allowed = np.broadcast_to((of_q[:, None] == of_k) & (of_q[:, None] < 6), (1, H_Q, T_Q, T_KV))
    if options.pop("is_causal", False):
        allowed = allowed & (ahead >= 0) & (ahead < options.pop("window", 99))
    bias, mask = np.zeros((1, H_Q, T_Q, T_KV)), options.pop("mask", None)
    if mask is not None:
        allowed, bias = (allowed & mask, bias) if mask.dtype == bool else (allowed, bias + mask)
    if (slopes := options.pop("alibi_slopes", None)) is not None:
        each = slopes[np.minimum(of_q - 1, 4)].T if slopes.ndim == 2 else slopes[:, None]
        bias = bias - each[..., None] * np.abs(ahead)
    q4, k4, v4 = (x.swapaxes(0, 1)[None] for x in (q, k, v))
    right, _ = truth(q4, k4, v4, allowed=allowed, bias=bias, **options)
    baseline = plain(q4, k4, v4, allowed=allowed, bias=bias, **options)
    assert_right(out[:21].swapaxes(0, 1)[None], right[:, :, :21], baseline[:, :, :21])


@pytest.mark.parametrize(
    ("option", "base"),
    [
        ({"mask": np.random.default_rng(2).random((T_Q, T_KV)) < 0.7}, {}),
        ({"is_causal": True}, {}),
        ({"window": 2}, {"is_causal": True}),
        ({"alibi_slopes": np.full(H_Q, 0.5)}, {}),
        ({"softcap": 0.5}, {}),
        ({"sinks": np.zeros(H_Q)}, {}),
        ({"scale": 1.0}, {}),
    ],
)
def test_each_option_changes_the_output(normal, option, base):
    """None of them is dropped on the way to a sequence."""
    q, k, v = inputs(np.asarray, normal)
    out = attention_varlen(q, k, v, CU_Q, CU_K, **base)
    assert np.abs(attention_varlen(q, k, v, CU_Q, CU_K, **base | option) - out).max() > 0.05


def test_a_sequence_never_sees_another(normal):
    """Moving every row of one sequence moves its outputs and no other's; the rows beyond reach nothing."""
    q, k, v = inputs(np.asarray, normal)
    before = attention_varlen(q, k, v, CU_Q, CU_K)
    k[7:10], v[10:21], k[28:], v[28:] = np.nan, v[10:21] + 1, np.nan, np.nan
    after = attention_varlen(q, k, v, CU_Q, CU_K)
    moved = (before != after).any((1, 2))
    assert moved[8:19].all()
    assert not np.delete(moved, np.s_[8:19]).any()


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, lambda x: torch.tensor(x, dtype=torch.int32)])
def test_cumulative_lengths_of_every_kind(normal, kind):
    """Lists, tuples, arrays and tensors of either library, int32 and int64."""
    q, k, v = inputs(np.asarray, normal)
    expected = attention_varlen(q, k, v, CU_Q, CU_K)
    np.testing.assert_array_equal(attention_varlen(q, k, v, kind(CU_Q), kind(CU_K)), expected)


def test_one_more_row_in_a_sequence_is_seen(normal):
    """Moving a boundary by one moves the output."""
    q, k, v = inputs(np.asarray, normal)
    out = attention_varlen(q, k, v, CU_Q, CU_K)
    assert np.abs(attention_varlen(q, k, v, CU_Q, [0, 8, 10, 10, 21, 28]) - out)[:5].max() > 0.01
    assert np.abs(attention_varlen(q, k, v, [0, 4, 5, 8, 19, 21], CU_K) - out)[4].max() > 0.01


def test_no_sequences_and_no_rows(make):
    """[0] is no sequence: every row is zero; and t may be 0."""
    q, k = make(np.ones((3, 2, 5))), make(np.ones((4, 1, 5)))
    out, lse = attention_varlen(q, k, k, [0], [0], sinks=make(np.ones(2)), return_lse=True)
    assert (as_float64(out) == 0).all()
    assert (as_float64(lse) == -np.inf).all()
    out, lse = attention_varlen(q[:0], k[:0], k[:0], [0, 0], [0, 0], return_lse=True)
    assert (tuple(out.shape), tuple(lse.shape)) == ((0, 2, 5), (0, 2))


def test_gradients_are_those_of_each_alone(normal):
    """Of an empty sequence, of one without keys and of the rows beyond exactly 0, none missing and none NaN."""
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs(np.asarray, normal)]
    out, lse = attention_varlen(*leaves, CU_Q, CU_K, is_causal=True, return_lse=True)
    (out.sum() + lse[:5].sum() + lse[8:21].sum()).backward()
    q, k, v = (x.grad for x in leaves)
    assert all((x == 0).all() for x in (q[5:8], q[21:], k[7:10], k[28:], v[7:10], v[28:]))
    for n in (0, 3, 4):
        ones = [alone(n, x.detach(), ends) for x, ends in zip(leaves, (CU_Q, CU_K, CU_K), strict=True)]
        ones = [x.contiguous().requires_grad_() for x in ones]
        one, one_lse = attention(*ones, is_causal=True, return_lse=True)
        (one.sum() + one_lse.sum()).backward()
        for got, expected, ends in zip((q, k, v), ones, (CU_Q, CU_K, CU_K), strict=True):
            torch.testing.assert_close(alone(n, got, ends), expected.grad, rtol=1e-12, atol=1e-12)


def test_gradcheck_of_every_input():
    """Packed q, k, v, an added mask, slopes of each sequence and sinks."""
    g = torch.Generator().manual_seed(5)
    shapes = ((6, 2, 3), (7, 1, 3), (7, 1, 2), (6, 7), (3, 2), (2,))
    leaves = [torch.randn(*shape, dtype=torch.float64, generator=g, requires_grad=True) for shape in shapes]

    def call(q, k, v, bias, slopes, sinks):
        out, lse = attention_varlen(
            q, k, v, [0, 3, 3, 5], [0, 4, 5, 6], mask=bias, is_causal=True, window=2, softcap=1.7, alibi_slopes=slopes,
            sinks=sinks, return_lse=True,
        )  # fmt: skip
        return out, torch.where(lse == -torch.inf, 0.0, lse)

    assert torch.autograd.gradcheck(call, leaves)


def test_gradients_where_there_is_no_sequence():
    """They are zeros, not missing."""
    leaves = [torch.ones(3, 1, 2, requires_grad=True) for _ in "qkv"]
    attention_varlen(*leaves, [0], [0]).sum().backward()
    assert all((x.grad == 0).all() for x in leaves)


@pytest.mark.parametrize(
    ("cu", "error", "text"),
    [
        ([0, 5, 4], ShapeError, "cu_seqlens_q[2] is 4 but cu_seqlens_q[1] is 5: they must not fall"),
        ([0, 24], ShapeError, "cu_seqlens_q ends at 24 but q has length 23 (axis t): expected at most 23"),
        ([1, 23], ShapeError, "cu_seqlens_q[0] is 1: expected 0, the start of the first sequence"),
        ([], ShapeError, "cu_seqlens_q is empty: expected 0 and then the end of each sequence"),
        ([0, 2.5], DTypeError, "cu_seqlens_q[1] is 2.5: expected a whole number"),
        (torch.tensor([0.0, 5.0]), DTypeError, "cu_seqlens_q has dtype torch.float32: expected whole numbers"),
        ([0, True], DTypeError, "cu_seqlens_q[1] is True: expected a whole number"),
        (np.zeros((2, 2), int), ShapeError,
         "cu_seqlens_q is (2, 2): expected one axis, a number more than there are sequences"),
        (5, ShapeError, "cu_seqlens_q is of type int: expected one axis, a number more than there are sequences"),
    ],
)  # fmt: skip
def test_lengths_that_are_none(normal, cu, error, text):
    """Falling, too long, not from 0, empty, no whole numbers, more than one axis."""
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        attention_varlen(*inputs(np.asarray, normal), cu, [0, 5])


def test_other_errors_name_what_came(normal):
    """Counts of sequences that differ, the packed layout, a mask and options that don't fit, kinds that are mixed."""
    q, k, v = inputs(np.asarray, normal)
    for text, change in (
        ("cu_seqlens_k counts 1 sequences but cu_seqlens_q 2: they must be equal", {"cu_seqlens_q": [0, 2, 4]}),
        ("q has 4 axes (1, 23, 4, 7): expected 3, (t, h, d): positions, heads, components", {"q": q[None]}),
        ("mask has length 5 along axis t_kv but the scores have 29: must be 29 or 1", {"mask": np.ones(5, bool)}),
        ("alibi_slopes has shape (2, 4): expected (h,) = (4,) or (b, h) = (1, 4)", {"alibi_slopes": np.ones((2, 4))}),
        ("sinks has shape (2,): expected (h,) = (4,)", {"sinks": np.ones(2)}),
    ):
        with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
            attention_varlen(**{"q": q, "k": k, "v": v, "cu_seqlens_q": [0, 3], "cu_seqlens_k": [0, 3]} | change)
    with pytest.raises(ValueError, match=r"^window is 2 but is_causal is False"):
        attention_varlen(q, k, v, [0], [0], window=2)
    with pytest.raises(DTypeError, match=r"^k has dtype float32 but q has float64: they must be equal$"):
        attention_varlen(q, k.astype(np.float32), v, [0], [0])
    with pytest.raises(DTypeError, match=r"^sinks has dtype int64: expected a floating-point dtype$"):
        attention_varlen(q, k, v, [0], [0], sinks=np.ones(4, dtype=int))
