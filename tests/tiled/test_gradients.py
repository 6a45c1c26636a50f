"""The backward pass, which calculates the weights again: against the truth, and by finite differences."""

import numpy as np
import pytest
import torch

from attnbook.tiled import attention, attention_backward, attention_forward
from tests.tiled.test_attention import DTYPES, H_Q, OPTIONS, TILES, B, inputs
from tests.tolerance import assert_refuses, assert_right, exact, plain_gradients


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_in_every_dtype(normal, name, dtype, tiles):
    """Those of q, k, v, an added mask, slopes and sinks, of out and lse together; garbage is refused."""
    leaves = dict(zip("qkv", inputs(normal, dtype=dtype), strict=True)) | {"bias": normal(B, H_Q, 11, 13, dtype=dtype)}
    leaves |= {key: x.to(dtype) for key, x in OPTIONS[name].items() if isinstance(x, torch.Tensor)}
    leaves = {key: x.clone().requires_grad_() for key, x in leaves.items()}
    others = {key: x for key, x in OPTIONS[name].items() if not isinstance(x, torch.Tensor)}
    d_out, d_lse = normal(B, H_Q, 11, 5, dtype=dtype), normal(B, H_Q, 11, dtype=dtype)

    given = {("mask" if key == "bias" else key): x for key, x in leaves.items()}
    out, lse = attention(**given, **others, **TILES[tiles], return_lse=True)
    grads = torch.autograd.grad([out, lse], list(leaves.values()), [d_out, d_lse.to(lse.dtype)])
    right = exact(**leaves, **others, d_out=d_out, d_lse=d_lse)
    baseline = plain_gradients(**leaves, **others, d_out=d_out, d_lse=d_lse)
    for key, grad in zip(leaves, grads, strict=True):
        plainly = torch.tensor(baseline[key]).to(dtype)
        assert grad.dtype == dtype
        assert_right(grad, right[key], plainly)
        wrong = {"zeros": 0 * right[key], "half as large": right[key] / 2, "turned": np.roll(right[key], 1, -1)}
        if key != "bias":
            wrong["lse forgotten"] = exact(**leaves, **others, d_out=d_out)[key]
        if dtype in (torch.float64, torch.float32) and key != "v":  # lse does not depend on v
            assert_refuses(wrong, right[key], plainly)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("t_q", "t_kv"), [(3, 5), (5, 3)])
@pytest.mark.parametrize("tiles", TILES)
def test_gradcheck_of_every_input(normal, is_causal, t_q, t_kv, tiles):
    """Output and lse differentiate rightly in q, k, v, an added mask, slopes and sinks, all options at once."""
    shapes = ((2, 2, t_q, 3), (2, 1, t_kv, 3), (2, 1, t_kv, 2), (t_q, t_kv), (2, 2), (2,))
    leaves = [normal(*shape).requires_grad_() for shape in shapes]

    def call(q, k, v, bias, slopes, sinks):
        return attention(
            q, k, v, mask=bias, is_causal=is_causal, window=2 if is_causal else None, alibi_slopes=slopes,
            softcap=1.7, sinks=sinks, return_lse=True, **TILES[tiles],
        )  # fmt: skip

    assert torch.autograd.gradcheck(call, leaves)


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradcheck_of_nothing_but_q_k_v(normal, is_causal):
    """Causal or not: a known kernel ignored the flag in its backward pass."""
    q, k, v = (normal(1, 2, 5, 3).requires_grad_() for _ in "qkv")
    assert torch.autograd.gradcheck(lambda *x: attention(*x, is_causal=is_causal, tile_q=2, tile_k=2), (q, k, v))


@pytest.mark.parametrize("shape", [(13,), (11, 1), (6, 1, 13), (2, 1, 11, 13), (1, 6, 1, 1), ()])
def test_the_gradient_of_a_mask_has_its_shape(normal, shape):
    """Summed over the axes along which it was broadcast; 0 where it hides."""
    q, k, v = inputs(normal)
    mask = normal(*shape)
    hidden = (mask > 1) if mask.numel() > 1 else torch.zeros_like(mask, dtype=torch.bool)
    mask = torch.where(hidden, -torch.inf, mask).requires_grad_()
    d_out = normal(B, H_Q, 11, 5)
    for tiles in TILES.values():
        (got,) = torch.autograd.grad(attention(q, k, v, mask=mask, is_causal=True, **tiles), mask, d_out)
        allowed = np.broadcast_to(~hidden.numpy(), (B, H_Q, 11, 13))
        bias = torch.where(hidden, 0.0, mask.detach()).expand(B, H_Q, 11, 13)
        right = torch.tensor(
            exact(q, k, v, d_out=d_out, allowed=allowed, bias=bias, is_causal=True)["bias"].astype(float)
        )
        torch.testing.assert_close(got, right.sum_to_size(shape), rtol=1e-10, atol=1e-10)
        assert (got[hidden] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("skip", [True, False])
def test_gradients_of_a_row_that_sees_nothing(normal, dtype, skip):
    """Whether the loss skips that row or not: all finite, exactly 0 from that row, the same as without it."""
    q, k, v = (normal(1, 1, 5, 3, dtype=dtype).requires_grad_() for _ in "qkv")
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    rest = [0, 1, 3, 4]
    out, lse = attention(q, k, v, mask=mask, return_lse=True)
    total = out[:, :, rest].sum() if skip else out.sum()
    got = torch.autograd.grad(total + (lse[:, :, rest] if skip else lse).sum(), (q, k, v))
    assert all(x.isfinite().all() for x in got)
    assert (got[0][:, :, 2] == 0).all()
    out, lse = attention(q[:, :, rest], k, v, return_lse=True)
    for x, expected in zip(got, torch.autograd.grad(out.sum() + lse.sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(x, expected)


def test_additive_infinity_leaves_dq_finite(normal):
    """q (2, 4), k (3, 4), one row of −inf: every gradient is finite, and the mask's is 0 where it hides."""
    q, k, v = (normal(1, 1, t, 4).requires_grad_() for t in (2, 3, 3))
    mask = torch.tensor([[0.0, 1.0, -torch.inf], [-torch.inf] * 3], dtype=torch.float64, requires_grad=True)
    attention(q, k, v, mask=mask)[..., 0].sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v, mask))
    assert (mask.grad[0, :2] != 0).all()
    assert (mask.grad[1] == 0).all()
    assert mask.grad[0, 2] == 0


def test_gradient_of_a_broadcast_sum(normal):
    """`out.sum().backward()` hands in a gradient of stride 0: the same as a contiguous one."""
    q, k, v = (x.requires_grad_() for x in inputs(normal))
    strided = torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))
    contiguous = torch.autograd.grad(attention(q, k, v), (q, k, v), torch.ones(B, H_Q, 11, 5, dtype=torch.float64))
    for x, y in zip(strided, contiguous, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-14, atol=1e-14)


def test_only_one_of_out_and_lse(normal):
    """A loss of the lse alone, or of the output alone."""
    q, k, v = (x.requires_grad_() for x in inputs(normal))
    out, lse = attention(q, k, v, return_lse=True)
    zero = torch.zeros_like(out)
    right = exact(q, k, v, d_out=zero, d_lse=torch.ones_like(lse))
    for x, name in zip(torch.autograd.grad(lse.sum(), (q, k, v), retain_graph=True), "qkv", strict=True):
        np.testing.assert_allclose(x, right[name].astype(float), rtol=1e-10, atol=1e-12)
    right = exact(q, k, v, d_out=zero + 1)
    for x, name in zip(torch.autograd.grad(out.sum(), (q, k, v)), "qkv", strict=True):
        np.testing.assert_allclose(x, right[name].astype(float), rtol=1e-10, atol=1e-12)


def test_what_is_not_asked_for_is_none(normal):
    """The gradients of mask, slopes and sinks come only where they are needed; those of q, k and v always."""
    q, k, v = inputs(normal)
    mask, slopes, sinks = normal(11, 13), normal(H_Q), normal(H_Q)
    out, lse = attention_forward(q, k, v, mask, slopes, sinks)
    given = (torch.ones_like(out), None, q, k, v, out, lse, mask, slopes, sinks)
    assert [x is None for x in attention_backward(*given)] == [False] * 3 + [True] * 3
    for i, name in enumerate(("needs_mask", "needs_alibi", "needs_sinks"), start=3):
        grads = attention_backward(*given, **{name: True})
        assert [x is not None for x in grads] == [True] * 3 + [i == 3, i == 4, i == 5]
        assert grads[i].shape == given[i + 4].shape


def test_it_can_be_differentiated_once(normal):
    """A second time is an error that says so and what to use; a first with create_graph is none."""
    q, k, v = (x.requires_grad_() for x in inputs(normal))
    (grad,) = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
    text = r"^attnbook\.tiled\.attention can be differentiated once: .*; attnbook\.reference can be"
    with pytest.raises(RuntimeError, match=text):
        grad.sum().backward()


def test_it_works_under_torch_func(normal):
    """`torch.func.grad` gives what autograd gives."""
    q, k, v = inputs(normal)
    got = torch.func.grad(lambda q: attention(q, k, v, is_causal=True).square().sum())(q)
    leaf = q.clone().requires_grad_()
    attention(leaf, k, v, is_causal=True).square().sum().backward()
    torch.testing.assert_close(got, leaf.grad)
