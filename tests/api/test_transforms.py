"""Calls without values (meta tensors), and calls inside transforms of torch.func and forward mode."""

import pytest
import torch

from attnbook import attention, explain
from attnbook.api import attention_varlen
from attnbook.errors import BackendUnavailable
from tests.api.samples import OPTIONS, D, inputs, options_of

# torch's own, when it first loads its derivatives in forward mode
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def leaves(tensors):
    """The same numbers, each with a gradient."""
    return [x.clone().requires_grad_() for x in tensors]


@pytest.mark.parametrize("name", OPTIONS)
def test_shapes_without_values(name):
    """On the meta device only shapes and dtypes come out, those of the real result."""
    tensors, options = inputs(), options_of(name)
    real = attention(*tensors, return_lse=True, **options)
    options = {key: x.to("meta") if torch.is_tensor(x) else x for key, x in options.items()}
    meta = attention(*(x.to("meta") for x in tensors), return_lse=True, **options)
    for x, y in zip(real, meta, strict=True):
        assert y.is_meta
        assert (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride())


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"is_causal": True, "window": 5}])
def test_gradients_of_functions(options):
    """torch.func.grad and forward mode run; "auto" takes what they can go through."""
    q, k, v = (x.double() for x in inputs(t_q=17, d_v=D))

    def total(q):
        return attention(q, k, v, **options).square().sum()

    leaf = q.clone().requires_grad_()
    total(leaf).backward()
    torch.testing.assert_close(torch.func.grad(total)(q), leaf.grad)
    _, slope = torch.func.jvp(total, (q,), (torch.ones_like(q),))
    torch.testing.assert_close(slope, leaf.grad.sum())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        assert explain(dual, k, v, **options).impl == "reference"
        assert "sdpa has no gradients in forward mode" in str(explain(dual, k, v, **options))
        slope = torch.autograd.forward_ad.unpack_dual(total(dual)).tangent
    torch.testing.assert_close(slope, leaf.grad.sum())


def test_what_a_transform_cannot_go_through():
    """BackendUnavailable says so, instead of an error from inside torch."""
    q = torch.randn(3, 1, 2, 19, 8)

    def call(impl, **options):
        return lambda q: attention(q, q, q, impl=impl, **options).sum()

    cases = [
        (torch.vmap(call("auto", is_causal=True)), "torch.vmap does not allow"),
        (torch.vmap(torch.func.grad(lambda q: call("auto", is_causal=True)(q).sum())), "torch.vmap does not allow"),
        (torch.vmap(call("reference")), "reference looks at values, which torch.vmap does not allow"),
        (torch.vmap(call("sdpa", is_causal=True)), "sdpa looks at values, which torch.vmap does not allow"),
        (torch.func.grad(call("tiled")), "tiled has a backward of its own"),
        (lambda q: torch.func.jvp(call("sdpa"), (q,), (q,)), "sdpa has no gradients in forward mode"),
    ]
    for function, text in cases:
        with pytest.raises(BackendUnavailable, match=text):
            function(q if text.endswith("allow") else q[0])
    with pytest.raises(BackendUnavailable, match=r"tiled looks at values, which torch\.vmap does not allow"):
        torch.vmap(lambda q: attention_varlen(q, q, q, [0, 19], [0, 19]))(q[:, 0].transpose(1, 2))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_vmap_where_nothing_must_be_looked_at():
    """Without hidden keys torch's own attention goes through vmap; axis b does the same and is faster."""
    q = torch.randn(3, 1, 2, 19, 8)
    torch.testing.assert_close(torch.vmap(lambda q: attention(q, q, q))(q)[:, 0], attention(*(q[:, 0],) * 3))


def test_gradients_of_gradients_are_refused():
    """The tiles are differentiable once and say so."""
    q, k, v = leaves(inputs())
    out = attention(q, k, v, is_causal=True, window=5)
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        grad.sum().backward()
