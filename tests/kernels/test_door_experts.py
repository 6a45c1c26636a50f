"""`moe(…, impl="triton")`: router and experts through the door, with gradients, operator, compiler and autocast."""

import re

import numpy as np
import pytest
import torch

from attnbook import moe
from attnbook.errors import BackendUnavailable, DTypeError, ShapeError
from tests.kernels.device import DEVICE
from tests.kernels.doors import NOISE, assert_same, leaves, moved, watch
from tests.moe_truth import garbage, plain, truth
from tests.test_moe import OPTIONS, E, T, inputs
from tests.tolerance import assert_refuses, assert_right

pytestmark = NOISE
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    """Each test compiles anew."""
    torch._dynamo.reset()


def on_device(arrays, options):
    """The same where the kernels run."""
    options = moved(options)
    if options.get("shared"):
        options["shared"] = tuple(x.to(DEVICE) for x in options["shared"])
    return [x.to(DEVICE) for x in arrays], options


@pytest.mark.parametrize(("name", "dtype"), [(name, DTYPES[i % 3]) for i, name in enumerate(OPTIONS)])
def test_right_with_every_option(name, dtype):
    """Output and routing are those of the definition, token by token; garbage is refused."""
    arrays, options = inputs(dtype, options=OPTIONS[name])
    right = truth(*arrays, top_k=2, **options)
    there, settings = on_device(arrays, options)
    y, info = moe(*there, top_k=2, impl="triton", **settings)
    same_dtype = plain(*arrays, right=right, **options)
    assert (y.dtype, y.device.type) == (dtype, DEVICE)
    assert_right(y.cpu(), right.y, same_dtype)
    assert_refuses(garbage(*arrays, top_k=2, **options), right.y, same_dtype)
    np.testing.assert_array_equal(info.experts.cpu(), right.experts)
    np.testing.assert_array_equal(info.loads.cpu(), right.loads)
    np.testing.assert_array_equal(info.dropped.cpu(), right.dropped)
    for got, exact in ((info.weights, right.weights), (info.aux_loss, right.aux_loss), (info.z_loss, right.z_loss)):
        assert got.dtype == torch.float32
        np.testing.assert_allclose(got.cpu(), exact, rtol=16 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("name", ["plain", "everything"])
def test_gradients_are_those_of_the_tiles(name):
    """Of x, of the router by weights and losses, and of every expert; tokens in a batch."""
    arrays, options = inputs(torch.float32, options=OPTIONS[name])
    found = []
    for impl in ("triton", "tiled"):
        there, settings = on_device(arrays, options)
        needs = leaves(there)
        y, info = moe(needs[0].reshape(1, T, -1), *needs[1:], top_k=2, impl=impl, **settings)
        weight = torch.linspace(-1, 1, y.numel(), device=DEVICE).reshape(y.shape)
        found.append(torch.autograd.grad((y * weight).sum() + info.aux_loss + info.z_loss, needs))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_an_expert_without_tokens_has_gradient_zero():
    """Exactly, and nothing of what was in memory before."""
    (x, router, *matrices), _ = inputs(torch.float32)
    there = leaves([x, router, *matrices])
    bias = torch.tensor([0.0, 0.0, 0.0, 0.0, -1e9]).to(DEVICE)  # the last expert is never chosen
    y, info = moe(*there, top_k=2, selection_bias=bias, impl="triton")
    y.sum().backward()
    assert int(info.loads[E - 1]) == 0
    for w in there[2:]:
        assert (w.grad[E - 1] == 0).all()
        assert w.grad.isfinite().all()


def experts_sample(grad=True):
    """The arguments of the operator; one assignment was dropped."""
    g = torch.Generator().manual_seed(5)
    x, weights = torch.randn(7, 3, generator=g), torch.rand(7, 2, generator=g)
    chosen = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(i))[:2] for i in range(7)])
    chosen[2, 1] = -1
    matrices = [torch.randn(5, *shape, generator=g) for shape in ((3, 4), (3, 4), (4, 3))]
    x, weights, *matrices = (a.to(DEVICE).requires_grad_(grad) for a in (x, weights, *matrices))
    return x, chosen.to(DEVICE), weights, *matrices


@pytest.mark.parametrize("grad", [False, True])
def test_experts_keep_the_rules(grad):
    """With and without gradients; and where the experts are frozen."""
    sample = experts_sample(grad)
    torch.library.opcheck(torch.ops.attnbook.moe_experts.default, (*sample, "triton"))
    frozen = (*sample[:3], *(x.detach() for x in sample[3:]))
    torch.library.opcheck(torch.ops.attnbook.moe_experts.default, (*frozen, "triton"))


def test_compiled():
    """The router is traced as plain torch, the experts are one operator; also with capacity and shared experts."""
    arrays, options = inputs(torch.float32, options=OPTIONS["everything"])
    there, settings = on_device(arrays, options)

    def call(*weights):
        y, info = moe(*weights, top_k=2, impl="triton", **settings)
        return y, info.aux_loss

    assert_same(call, torch.compile(call, fullgraph=True, backend="aot_eager"), lambda: leaves(there))


def test_autocast():
    """The same bits as for x and matrices cast by hand; the router's weights are not cast."""
    (x, router, *matrices), _ = inputs(torch.float32)
    x, router, *matrices = leaves([x, router, *matrices])
    with torch.autocast(DEVICE, torch.bfloat16):
        y, _ = moe(x, router, *matrices, top_k=2, impl="triton")
    half = [a.to(torch.bfloat16) for a in (x, *matrices)]
    expected, _ = moe(half[0], router, *half[1:], top_k=2, impl="triton")
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, expected)
    for got, right in zip(
        torch.autograd.grad(y.float().square().sum(), (x, *matrices)),
        torch.autograd.grad(expected.float().square().sum(), (x, *matrices)),
        strict=True,
    ):
        assert torch.equal(got, right)


def test_the_kernels_are_what_runs(monkeypatch):
    """By name both, the router's and the experts'; "auto" on a CPU reaches neither."""
    went = []
    for name in ("route", "experts_forward", "experts_backward"):
        watch(monkeypatch, "attnbook.kernels.moe", name, went)
    arrays, _ = on_device(inputs(torch.float32)[0], {})
    moe(*leaves(arrays), top_k=2, impl="triton")[0].sum().backward()
    assert went == ["route", "experts_forward", "experts_backward"]
    went.clear()
    moe(*arrays, top_k=2)
    assert went == (["route", "experts_forward"] if DEVICE == "cuda" else [])


def test_no_tokens():
    """Nothing in, nothing out, gradients of zero."""
    arrays, _ = inputs(torch.float32, t=0)
    there = leaves(arrays)
    y, info = moe(*there, top_k=2, impl="triton")
    assert (y.shape[0], int(info.loads.sum())) == (0, 0)
    y.sum().backward()
    assert all((w.grad == 0).all() for w in there[2:])


def test_what_is_refused():
    """float64; and what every implementation refuses, with the same words."""
    arrays, _ = inputs(torch.float64)
    arrays, _ = on_device(arrays, {})
    text = "triton: the dtype is float64, and the kernels take float32, float16 and bfloat16"
    with pytest.raises(BackendUnavailable, match=f"^{re.escape(text)}$"):
        moe(*arrays, top_k=2, impl="triton")
    x, router, *matrices = (a.float() for a in arrays)
    with pytest.raises(ValueError, match="top_k is 6 but router_weight has 5 experts"):
        moe(x, router, *matrices, top_k=6, impl="triton")
    with pytest.raises(DTypeError, match=r"w_up has dtype torch\.float16 but x has torch\.float32"):
        moe(x, router, matrices[0], matrices[1].half(), matrices[2], top_k=2, impl="triton")
    with pytest.raises(ShapeError, match="w_down has 4 experts"):
        moe(x, router, *matrices[:2], matrices[2][:4], top_k=2, impl="triton")
    with pytest.raises(TypeError, match="x is a ndarray: expected a torch tensor"):
        moe(x.cpu().numpy(), router, *matrices, top_k=2, impl="triton")
