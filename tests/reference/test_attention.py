"""The reference against the definition, and its conventions one by one."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference import attention, causal_mask, padding_mask
from tests.tolerance import as_float64, assert_refuses, assert_right, causal, garbage, plain, truth

B, H_Q, H_KV = 2, 6, 3


def inputs(make, normal, t_q=11, t_kv=11, d=7, d_v=5):
    """q, k, v with grouped heads and different sizes along every axis."""
    return make(normal((B, H_Q, t_q, d))), make(normal((B, H_KV, t_kv, d))), make(normal((B, H_KV, t_kv, d_v)))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("t_q", "t_kv"), [(11, 11), (3, 13), (13, 3), (1, 5), (97, 103)])
def test_right_in_every_dtype(make, normal, is_causal, t_q, t_kv):
    """As near to the truth as a plain calculation in the same dtype, with its lse; garbage is refused."""
    q, k, v = inputs(make, normal, t_q, t_kv)
    allowed = causal((B, H_Q, t_q, t_kv)) if is_causal else None
    exact, exact_lse = truth(q, k, v, allowed=allowed)
    baseline = plain(q, k, v, allowed=allowed)
    out, lse = attention(q, k, v, is_causal=is_causal, return_lse=True)
    assert type(out) is type(q)
    assert out.dtype == q.dtype
    assert str(lse.dtype).endswith("float64" if str(q.dtype).endswith("float64") else "float32")
    assert_right(out, exact, baseline)
    np.testing.assert_allclose(as_float64(lse), exact_lse, rtol=0, atol=1e-5)
    assert_refuses(garbage(q, k, v, is_causal=is_causal), exact, baseline)


@pytest.mark.parametrize("size", [(97, 111, 40), (111, 97, 59), (203, 113, 80), (23, 113, 111)])
def test_awkward_sizes(normal, size):
    """Lengths and head dims that are no multiple of anything."""
    t_q, t_kv, d = size
    q, k, v = (normal((1, 1, t, n)).astype(np.float32) for t, n in ((t_q, d), (t_kv, d), (t_kv, d + 3)))
    allowed = causal((1, 1, t_q, t_kv))
    exact, _ = truth(q, k, v, allowed=allowed)
    assert_right(attention(q, k, v, is_causal=True), exact, plain(q, k, v, allowed=allowed))


def test_values_may_be_wider_or_narrower_than_keys(normal):
    """head_dim 192 for queries and keys, 128 for values."""
    q, k, v = (normal((1, 1, 5, d)) for d in (192, 192, 128))
    assert_right(attention(q, k, v), truth(q, k, v)[0], plain(q, k, v))


# Each parameter does what it says, and flipping it is seen


def test_scale(normal):
    """The default is 1/√d; another scale gives another output; 0 gives the plain mean."""
    q, k, v = (normal((1, 1, 5, 7)) for _ in "qkv")
    np.testing.assert_array_equal(attention(q, k, v), attention(q, k, v, scale=1 / 7**0.5))
    np.testing.assert_allclose(attention(q, k, v, scale=0.3), truth(q, k, v, scale=0.3)[0], rtol=1e-12)
    assert np.abs(attention(q, k, v, scale=1.0) - attention(q, k, v)).max() > 0.1
    np.testing.assert_allclose(attention(q, k, v, scale=0.0), v.mean(2, keepdims=True).repeat(5, 2), rtol=1e-12)


def test_is_causal(normal):
    """It is the causal mask, and it changes the output."""
    q, k, v = normal((1, 1, 5, 7)), normal((1, 1, 7, 7)), normal((1, 1, 7, 7))
    np.testing.assert_array_equal(attention(q, k, v, is_causal=True), attention(q, k, v, mask=causal_mask(5, 7)))
    assert np.abs(attention(q, k, v, is_causal=True) - attention(q, k, v)).max() > 0.1


def test_return_lse(normal):
    """It adds the second result and leaves the first; the weights are exp(score − lse)."""
    q, k, v = (normal((1, 1, 5, 7)) for _ in "qkv")
    out, lse = attention(q, k, v, return_lse=True)
    np.testing.assert_array_equal(out, attention(q, k, v))
    weight = np.exp(q @ k.mT / 7**0.5 - lse[..., None])
    np.testing.assert_allclose(weight @ v, out, rtol=1e-12)


def test_mask_polarity(normal):
    """True = may attend; the inverted mask gives another output."""
    q, k, v = (normal((1, 1, 5, 7)) for _ in "qkv")
    mask = causal_mask(5)
    np.testing.assert_allclose(attention(q, k, v, mask=mask), truth(q, k, v, allowed=causal((1, 1, 5, 5)))[0])
    assert np.abs(attention(q, k, v, mask=~mask) - attention(q, k, v, mask=mask)).max() > 0.1


def test_additive_mask_is_added_after_the_scale(normal):
    """A float mask is a bias on scaled scores, with −inf for keys that are hidden."""
    q, k, v = normal((2, 3, 5, 7)), normal((2, 3, 7, 7)), normal((2, 3, 7, 7))
    bias = normal((2, 3, 5, 7))
    bias[:, :, :, 2] = -np.inf
    allowed = np.isfinite(bias)
    exact, exact_lse = truth(q, k, v, allowed=allowed, bias=bias)
    out, lse = attention(q, k, v, mask=bias, return_lse=True)
    np.testing.assert_allclose(out, exact, rtol=1e-10)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-10)
    assert np.abs(attention(q, k, v, mask=2 * bias) - out).max() > 0.1


@pytest.mark.parametrize("shape", [(7,), (5, 7), (5, 1), (6, 1, 7), (2, 1, 1, 7), (2, 6, 5, 7)])
def test_masks_broadcast(normal, shape):
    """A mask of fewer axes or of length 1 stands for its repetition."""
    q, k, v = normal((2, 6, 5, 3)), normal((2, 3, 7, 3)), normal((2, 3, 7, 3))
    mask = normal(shape) > 0
    exact, _ = truth(q, k, v, allowed=np.broadcast_to(mask, (2, 6, 5, 7)))
    np.testing.assert_allclose(attention(q, k, v, mask=mask), exact, rtol=1e-10, atol=1e-15)


def test_causal_and_padding_combine_as_booleans(make, normal):
    """In float16 and bfloat16 too: no minimum is added to another, and both must allow."""
    q, k, v = inputs(make, normal, 7, 7)
    lengths = np.array([3, 7])
    mask = padding_mask(torch.tensor(lengths) if isinstance(q, torch.Tensor) else lengths, 7, side="left")
    allowed = causal((B, H_Q, 7, 7)) & np.asarray(mask)
    exact, _ = truth(q, k, v, allowed=allowed)
    out = attention(q, k, v, mask=mask, is_causal=True)
    assert_right(out, exact, plain(q, k, v, allowed=allowed))
    assert (as_float64(out)[0, :, :4] == 0).all()  # filling at the left sees nothing
    lowest = float(torch.finfo(torch.as_tensor(q).dtype).min)
    added = make(np.where(np.asarray(mask), 0.0, lowest))  # the same padding as people often write it
    assert (attention(q, k, v, mask=added, is_causal=True) == out).all()


def test_grouped_heads_are_contiguous(normal):
    """4 query heads on 2 key heads use [0, 0, 1, 1], and equal the keys and values repeated."""
    q, k, v = normal((1, 4, 5, 3)), normal((1, 2, 5, 3)), normal((1, 2, 5, 3))
    out = attention(q, k, v)
    for head, group in enumerate([0, 0, 1, 1]):
        one = attention(q[:, head : head + 1], k[:, group : group + 1], v[:, group : group + 1])
        np.testing.assert_allclose(out[:, head], one[:, 0], rtol=1e-13)
    np.testing.assert_array_equal(out, attention(q, k.repeat(2, axis=1), v.repeat(2, axis=1)))


def test_batch_rows_do_not_meet(normal):
    """A sequence alone gives what it gives in a batch, bit for bit."""
    q, k, v = (normal((7, 2, 5, 3)) for _ in "qkv")
    out = attention(q, k, v, is_causal=True)
    for b in range(7):
        np.testing.assert_array_equal(attention(*(x[b : b + 1] for x in (q, k, v)), is_causal=True)[0], out[b])


# Alignment and rows that see nothing


def test_one_new_token_sees_the_whole_past(normal):
    """t_q 1, t_kv 5, causal: the mean of all five for equal scores, not v[0] as top-left alignment gives."""
    q, k, v = np.zeros((1, 1, 1, 3)), normal((1, 1, 5, 3)), normal((1, 1, 5, 3))
    np.testing.assert_allclose(attention(q, k, v, is_causal=True)[0, 0, 0], v[0, 0].mean(0), rtol=1e-14)


def test_queries_before_the_first_key(make, normal):
    """t_q 5, t_kv 2, causal: rows 0–2 are zero with lse −inf, row 3 is v[0]."""
    q, k, v = inputs(make, normal, 5, 2)
    out, lse = attention(q, k, v, is_causal=True, return_lse=True)
    assert (as_float64(out)[:, :, :3] == 0).all()
    assert (as_float64(lse)[:, :, :3] == -np.inf).all()
    assert np.isfinite(as_float64(lse)[:, :, 3:]).all()
    np.testing.assert_array_equal(as_float64(out)[:, :, 3], as_float64(v)[:, :, 0].repeat(2, axis=1))


@pytest.mark.parametrize("hide", ["boolean", "-inf", "lowest"])
def test_a_row_that_may_see_nothing_is_zero(make, normal, hide):
    """However it is written. The lowest finite number would give the mean of v, silently."""
    q, k, v = inputs(make, normal, 3, 5)
    allowed = np.ones((3, 5), bool)
    allowed[1] = False
    lowest = float(torch.finfo(torch.as_tensor(q).dtype).min)
    mask = {"boolean": allowed, "-inf": np.where(allowed, 0.0, -np.inf), "lowest": np.where(allowed, 0.0, lowest)}
    out, lse = attention(q, k, v, mask=make(mask[hide]), return_lse=True)
    assert (as_float64(out)[:, :, 1] == 0).all()
    assert (as_float64(lse)[:, :, 1] == -np.inf).all()
    exact, _ = truth(q, k, v, allowed=np.broadcast_to(allowed, (B, H_Q, 3, 5)))
    assert_right(out, exact, plain(q, k, v, allowed=np.broadcast_to(allowed, (B, H_Q, 3, 5))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("skip", [True, False])
def test_gradients_of_a_row_that_sees_nothing(dtype, skip):
    """Whether the loss skips that row or not: all finite, exactly 0 from that row, the same as without it."""
    g = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 1, 5, 3, generator=g).to(dtype).requires_grad_() for _ in "qkv")
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    out, lse = attention(q, k, v, mask=mask, return_lse=True)
    rows = [0, 1, 3, 4] if skip else [0, 1, 2, 3, 4]
    (out[:, :, rows].sum() + lse[:, :, [0, 1, 3, 4]].sum()).backward()
    got = [x.grad.clone() for x in (q, k, v)]
    assert all(torch.isfinite(x).all() for x in got)
    assert (got[0][:, :, 2] == 0).all()
    for x in (q, k, v):
        x.grad = None
    out, lse = attention(q[:, :, [0, 1, 3, 4]], k, v, return_lse=True)
    (out.sum() + lse.sum()).backward()
    for x, expected in zip(got, (q, k, v), strict=True):
        torch.testing.assert_close(x, expected.grad)


def test_lse_of_a_row_that_sees_nothing_sends_no_gradient():
    """Even where its −inf itself is in the loss."""
    q, k, v = (torch.randn(1, 1, 2, 3, requires_grad=True) for _ in "qkv")
    _, lse = attention(q, k, v, mask=torch.tensor([[True, True], [False, False]]), return_lse=True)
    lse.sum().backward()
    assert torch.isfinite(q.grad).all()
    assert (q.grad[:, :, 1] == 0).all()
    assert (q.grad[:, :, 0] != 0).any()


def test_additive_infinity_leaves_dq_finite():
    """q (2, 4), k (3, 4), one row of −inf: cleaned before softmax, dq has no NaN, and a bias has its gradient."""
    g = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(1, 1, t, 4, dtype=torch.float64, generator=g, requires_grad=True) for t in (2, 3, 3))
    mask = torch.tensor([[0.0, 1.0, -torch.inf], [-torch.inf] * 3], dtype=torch.float64, requires_grad=True)
    attention(q, k, v, mask=mask)[..., 0].sum().backward()
    for x in (q, k, v, mask):
        assert torch.isfinite(x.grad).all()
    assert (mask.grad[0, :2] != 0).all()
    assert (mask.grad[1] == 0).all()
    assert mask.grad[0, 2] == 0


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("t_q", "t_kv"), [(3, 5), (5, 3)])
def test_gradcheck(is_causal, t_q, t_kv):
    """Output and lse differentiate rightly in q, k, v and an additive mask; causal or not."""
    g = torch.Generator().manual_seed(5)
    q, k, v, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=g, requires_grad=True)
        for shape in ((1, 2, t_q, 3), (1, 1, t_kv, 3), (1, 1, t_kv, 2), (t_q, t_kv))
    )

    def call(q, k, v, bias):
        out, lse = attention(q, k, v, mask=bias, is_causal=is_causal, return_lse=True)
        return out, torch.where(lse == -torch.inf, 0.0, lse)

    assert torch.autograd.gradcheck(call, (q, k, v, bias))
    assert torch.autograd.gradgradcheck(call, (q, k, v, bias))


def test_gradient_of_a_broadcast_sum():
    """`out.sum().backward()` hands in a gradient of stride 0: the same as a contiguous one."""
    q, k, v = (torch.randn(1, 2, 5, 3, requires_grad=True) for _ in "qkv")
    strided = torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))
    contiguous = torch.autograd.grad(attention(q, k, v), (q, k, v), torch.ones(1, 2, 5, 3))
    for x, y in zip(strided, contiguous, strict=True):
        assert torch.equal(x, y)


# Strides, sizes, dtypes


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_views_equal_copies(normal, library):
    """Transposed, sliced and expanded inputs give what their contiguous copies give."""
    base = normal((2, 11, 3, 14))
    base = torch.from_numpy(base) if library == "torch" else base
    q, k = base.swapaxes(1, 2)[..., ::2], base.swapaxes(1, 2)[..., 7:]
    v = np.broadcast_to(base[:1, :, :1, :5].swapaxes(1, 2), (2, 3, 11, 5)) if library == "numpy" else (
        base[:1, :, :1, :5].swapaxes(1, 2).expand(2, 3, 11, 5)
    )  # fmt: skip
    copies = [x.copy() if library == "numpy" else x.contiguous() for x in (q, k, v)]
    got, expected = attention(q, k, v, is_causal=True), attention(*copies, is_causal=True)
    np.testing.assert_allclose(as_float64(got), as_float64(expected), rtol=1e-13)


def test_gradients_through_views_equal_those_through_copies(normal):
    """Transposed and sliced inputs, and one that is expanded (stride 0) over batch and heads."""
    base = torch.from_numpy(normal((2, 7, 2, 11))).requires_grad_()
    one = torch.from_numpy(normal((1, 7, 1, 5)))[0].requires_grad_()  # (t, 1, d)

    def gradients(copy):
        q, k = base.transpose(1, 2)[..., :3], base.transpose(1, 2)[..., 4::3]
        v = one.transpose(0, 1).expand(2, 2, 7, 5)
        q, k, v = (x.contiguous() if copy else x for x in (q, k, v))
        weight = torch.arange(2 * 2 * 7 * 5, dtype=torch.float64).reshape(2, 2, 7, 5)
        return torch.autograd.grad((attention(q, k, v, is_causal=True) * weight).sum(), (base, one))

    for got, expected in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
        assert (got != 0).any()


@pytest.mark.parametrize(
    ("q_shape", "kv_shape"),
    [((0, 2, 3, 5), (0, 2, 3, 5)), ((1, 2, 0, 5), (1, 2, 3, 5)), ((1, 2, 3, 5), (1, 2, 0, 5)), ((1, 0, 3, 5),) * 2],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_empty_sizes(make, q_shape, kv_shape, is_causal):
    """Batch 0, t_q 0, t_kv 0 and no heads are legal; without keys the output is 0 and lse −inf."""
    q, k, v = make(np.ones(q_shape)), make(np.ones(kv_shape)), make(np.ones(kv_shape))
    out, lse = attention(q, k, v, is_causal=is_causal, return_lse=True)
    assert tuple(out.shape) == q_shape
    assert tuple(lse.shape) == q_shape[:-1]
    assert (as_float64(out) == 0).all()
    assert (as_float64(lse) == -np.inf).all()


def test_gradients_of_empty_sizes():
    """Without keys the gradient of q is 0, not None and not NaN."""
    q, k = torch.ones(1, 1, 3, 5, requires_grad=True), torch.ones(1, 1, 0, 5, requires_grad=True)
    attention(q, k, k).sum().backward()
    assert (q.grad == 0).all()
    assert k.grad.shape == (1, 1, 0, 5)


def test_half_precision_accumulates_in_float32():
    """4099 equal weights in float16 average ones to exactly 1: float16 sums stop counting at 2048."""
    q, k, v = torch.zeros(1, 1, 1, 3).half(), torch.zeros(1, 1, 4099, 3).half(), torch.ones(1, 1, 4099, 3).half()
    assert attention(q, k, v).tolist() == [[[[1.0, 1.0, 1.0]]]]


def test_large_scores_are_finite(make):
    """Scores beyond the largest float16 (300 · 300 · 7) are calculated in float32."""
    x = make(np.full((1, 1, 5, 7), 300.0))
    assert (as_float64(attention(x, x, x)) == 300).all()


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.complex128])
def test_other_numbers_are_refused(dtype):
    """The error names the input and its dtype."""
    x = np.ones((1, 1, 2, 2), dtype)
    with pytest.raises(DTypeError, match=f"^q has dtype {x.dtype}: expected a floating-point dtype$"):
        attention(x, x, x)


def test_errors_name_what_came(normal):
    """Dtypes that differ, a head_dim of 0, libraries that are mixed, and the shape checks."""
    q = normal((1, 1, 2, 3))
    with pytest.raises(DTypeError, match=r"^v has dtype float32 but q has float64: they must be equal$"):
        attention(q, q, q.astype(np.float32))
    with pytest.raises(ShapeError, match=r"^q has head_dim 0 \(axis d\): expected at least 1, or a scale$"):
        attention(q[..., :0], q[..., :0], q)
    with pytest.raises(TypeError, match=r"^k comes from torch but q from numpy: they must come from one library$"):
        attention(q, torch.from_numpy(q), q)
    text = "k has 3 heads (axis h) but q has 8: n_heads must be a multiple of n_kv_heads"
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        attention(normal((1, 8, 2, 3)), normal((1, 3, 2, 3)), normal((1, 3, 2, 3)))
    with pytest.raises(ShapeError, match=r"^mask has length 4 along axis t_kv but the scores have 2: must be 2 or 1$"):
        attention(q, q, q, mask=np.ones(4, bool))


def test_head_dim_zero_with_a_scale_is_the_mean(normal):
    """Scores of no components are all 0."""
    q, v = np.ones((1, 1, 2, 0)), normal((1, 1, 2, 3))
    np.testing.assert_allclose(attention(q, q, v, scale=1.0)[0, 0, 0], v[0, 0].mean(0), rtol=1e-14)
