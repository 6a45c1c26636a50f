"""`attention(…, impl="triton")`: every option through the door, results, lse and gradients, and what it refuses."""

import re

import pytest
import torch

from attnbook import attention, explain
from attnbook.errors import BackendUnavailable
from tests.api.samples import D_V, H_Q, OPTIONS, T_Q, B, D, for_truth, inputs, options_of
from tests.kernels.device import DEVICE
from tests.kernels.doors import moved, watch
from tests.tolerance import assert_refuses, assert_right, exact, garbage, plain, plain_gradients, plain_lse, worst

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def baseline(right, q, k, v, **options):
    """A plain calculation, with sums in the order that gives the larger error."""
    return worst(right, *(plain(q, k, v, backwards=backwards, **options) for backwards in (False, True)))


EACH = [(name, DTYPES[i % 3]) for i, name in enumerate(OPTIONS) if name != "all"]
"""Every option in some dtype, and all options together in every one."""


@pytest.mark.parametrize(("name", "dtype"), EACH + [("all", dtype) for dtype in DTYPES])
def test_right_with_every_option(name, dtype):
    """As near to the truth as a plain calculation in the same dtype, lse too; garbage is refused."""
    q, k, v = inputs(dtype)
    options = options_of(name, dtype)
    definition = for_truth(options)
    right = exact(q, k, v, **definition)
    on_device = [x.to(DEVICE) for x in (q, k, v)]
    out, lse = attention(*on_device, return_lse=True, impl="triton", **moved(options))
    assert (out.dtype, lse.dtype, out.device.type) == (dtype, torch.float32, DEVICE)
    assert torch.equal(out, attention(*on_device, impl="triton", **moved(options)))
    plainly = baseline(right["out"], q, k, v, **definition)
    assert_right(out.cpu(), right["out"], plainly)
    assert_right(lse.cpu(), right["lse"], plain_lse(q, k, v, **definition), roundings=2)
    assert_refuses(garbage(q, k, v, **definition), right["out"], plainly)


@pytest.mark.parametrize(("dtype", "t_q"), [(torch.float32, 1), (torch.float16, 3), (torch.bfloat16, 1)])
def test_few_queries(dtype, t_q, monkeypatch):
    """They go to the decoding kernels, right as well; more of them, or fewer keys, to the others."""
    went = []
    for module, name in (("decode", "decode_forward"), ("flash", "attention_forward")):
        watch(monkeypatch, f"attnbook.kernels.{module}", name, went)
    q, k, v = inputs(dtype, t_q=t_q, t_kv=281)
    on_device = [x.to(DEVICE) for x in (q, k, v)]
    options = {"is_causal": True, "window": 263, "softcap": 3.0}
    out, lse = attention(*on_device, return_lse=True, impl="triton", **options)
    right = exact(q, k, v, **options)
    assert_right(out.cpu(), right["out"], baseline(right["out"], q, k, v, **options))
    assert_right(lse.cpu(), right["lse"], plain_lse(q, k, v, **options), roundings=2)
    assert went == ["decode_forward"]
    attention(*(x.to(DEVICE) for x in inputs(dtype, t_q=17, t_kv=257, b=1)), impl="triton")
    attention(*(x.to(DEVICE) for x in inputs(dtype, t_q=1, t_kv=101, b=1)), impl="triton")
    assert went == ["decode_forward", "attention_forward", "attention_forward"]


NEEDED = [
    ("none", torch.bfloat16),
    ("boolean mask and causal", torch.float16),
    ("slopes of each sequence", torch.float32),
    *(("all", dtype) for dtype in DTYPES),
]


@pytest.mark.parametrize(("name", "dtype"), NEEDED)
def test_gradients(name, dtype):
    """Those of q, k, v and of whatever floats the options bring; also that of the lse."""
    q, k, v = inputs(dtype)
    options = options_of(name, dtype)
    definition = for_truth(options)
    d_out = torch.randn(B, H_Q, T_Q, D_V, generator=torch.Generator().manual_seed(3)).to(dtype)
    d_lse = torch.randn(B, H_Q, T_Q, generator=torch.Generator().manual_seed(4))
    leaves = {"q": q, "k": k, "v": v}
    leaves |= {key: x for key, x in options.items() if torch.is_tensor(x) and x.is_floating_point()}
    leaves = {key: x.to(DEVICE, copy=True).requires_grad_() for key, x in leaves.items()}
    out, lse = attention(**(moved(options) | leaves), return_lse=True, impl="triton")
    assert lse.isfinite().all()
    torch.autograd.backward([out, lse], [d_out.to(DEVICE), d_lse.to(DEVICE)])
    right = exact(q, k, v, d_out=d_out, d_lse=d_lse, **definition)
    plainly = plain_gradients(q, k, v, d_out=d_out, d_lse=d_lse, right=right, **definition)
    for key, leaf in leaves.items():
        expected, rounded = (torch.as_tensor(x["bias" if key == "mask" else key]) for x in (right, plainly))
        if key == "mask":  # summed over what it was broadcast along
            expected, rounded = (x.sum_to_size(leaf.shape) for x in (expected, rounded))
        assert_right(leaf.grad.cpu(), expected.double().numpy(), rounded)


def test_only_what_is_asked_for_has_a_gradient(monkeypatch):
    """Without one, no graph; with that of the sinks alone, no other. It is the kernels that calculate it."""
    went = []
    watch(monkeypatch, "attnbook.kernels.flash", "attention_backward", went)
    q, k, v = (x.to(DEVICE) for x in inputs())
    assert not attention(q, k, v, impl="triton").requires_grad
    sinks = torch.zeros(H_Q, device=DEVICE, requires_grad=True)
    attention(q, k, v, sinks=sinks, impl="triton").sum().backward()
    assert sinks.grad.abs().min() > 0
    assert q.grad is None
    assert went == ["attention_backward"]


def test_a_second_derivative_raises():
    """There is none, and it is not wrong silently."""
    q, k, v = (x.to(DEVICE).requires_grad_() for x in inputs())
    (grad,) = torch.autograd.grad(attention(q, k, v, impl="triton").square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"backward through attnbook\.attention_backward"):
        grad.sum().backward()


@pytest.mark.parametrize("sizes", [{"b": 0}, {"t_q": 0}, {"t_kv": 0}, {"t_q": 5, "t_kv": 2}, {"t_q": 1, "t_kv": 1}])
def test_nothing_and_hardly_anything(sizes):
    """Empty axes, and queries before the first key: output 0, lse −inf, gradients 0; never a number of before."""
    q, k, v = (x.to(DEVICE).requires_grad_() for x in inputs(**sizes))
    out, lse = attention(q, k, v, is_causal=True, return_lse=True, impl="triton")
    reference, of_lse = attention(q, k, v, is_causal=True, return_lse=True, impl="reference")
    torch.testing.assert_close(out, reference)
    torch.testing.assert_close(lse, of_lse)
    grads, expected = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, reference))
    for got, right in zip(grads, expected, strict=True):
        torch.testing.assert_close(got, right)


def test_lists_and_arrays_as_slopes_and_sinks():
    """Settings may come from NumPy or as a list; the kernels get tensors."""
    import numpy

    q, k, v = (x.to(DEVICE) for x in inputs())
    slopes, sinks = [0.5, 0.25, 0.125, 0.3, 0.05, 0.01], numpy.linspace(-1, 1, 6)
    got = attention(q, k, v, alibi_slopes=slopes, sinks=sinks, impl="triton")
    tensors = {"alibi_slopes": torch.tensor(slopes).to(DEVICE), "sinks": torch.tensor(sinks).float().to(DEVICE)}
    assert torch.equal(got, attention(q, k, v, impl="triton", **tensors))


def test_a_nan_stays_in_the_rows_that_may_see_it():
    """Also behind the door: the last key's values, which only the last query may see."""
    q, k, v = (x.to(DEVICE) for x in inputs(t_q=17))
    v[:, :, -1] = torch.nan
    out = attention(q, k, v, is_causal=True, impl="triton")
    assert out[:, :, -1].isnan().all()
    assert out[:, :, :-1].isfinite().all()


# What it refuses


REFUSED = {
    "float64": ((torch.float64, D), "triton: the dtype is float64, and the kernels take float32, float16 and bfloat16"),
    "a wide head": ((torch.float32, 257), "triton: q has head_dim 257 (axis d), and the kernels take 1 to 256"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_takes(name):
    """An error by name, before anything runs; explain says the same, and "auto" goes another way."""
    (dtype, d), text = REFUSED[name]
    q = torch.ones(1, 2, 5, d, dtype=dtype, device=DEVICE)
    for call in (attention, explain):
        with pytest.raises(BackendUnavailable, match=f"^{re.escape(text)}$"):
            call(q, q, q, impl="triton")
    said = explain(q, q, q, softcap=3.0)
    assert (said.impl, said.rejected["triton"]) == ("tiled", text)


def test_the_widest_row_is_taken():
    """256 components, and 1."""
    q, k, v = inputs(t_q=5, t_kv=7)
    q, k = (torch.nn.functional.pad(x, (0, 256 - D)) for x in (q, k))
    right = exact(q, k, v[..., :1])["out"]
    out = attention(*(x.to(DEVICE) for x in (q, k, v[..., :1])), impl="triton")
    assert_right(out.cpu(), right, baseline(right, q, k, v[..., :1]))


def test_explained():
    """By name it runs; on a CPU the interpreter is never chosen for anyone."""
    q, k, v = (x.to(DEVICE) for x in inputs())
    assert explain(q, k, v, impl="triton").impl == "triton"
    windowed = explain(q, k, v, is_causal=True, window=5)
    assert windowed.impl == ("triton" if DEVICE == "cuda" else "tiled")
    if DEVICE == "cpu":
        assert windowed.rejected["triton"] == "it can, in Triton's interpreter, which checks the kernels and is slow"


def test_what_is_said_is_what_runs(monkeypatch):
    """The kernels are reached by name, and with "auto" where `explain` says so."""
    went = []
    watch(monkeypatch, "attnbook.api.kernels", "forward", went)
    q, k, v = (x.to(DEVICE) for x in inputs())
    for options in ({}, {"softcap": 3.0}):
        went.clear()
        attention(q, k, v, **options)
        assert bool(went) == (explain(q, k, v, **options).impl == "triton")
        attention(q, k, v, impl="triton", **options)
        assert went
