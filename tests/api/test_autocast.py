"""Inside torch.autocast: q, k, v become its dtype, as for torch's own attention; sums stay in float32."""

import pytest
import torch

from attnbook import attention, tiled
from attnbook.api import attention_varlen, moe
from attnbook.errors import DTypeError
from tests.api.samples import ABLE, D, inputs, options_of

PACKED = [torch.randn(11, 6, 7), torch.randn(11, 3, 7), torch.randn(11, 3, 5)]


def off(*args, **options):
    """The call with autocast off again: what the result should be for inputs cast by hand."""
    with torch.autocast("cpu", enabled=False):
        return attention(*args, **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("impl", "name"), ABLE)
def test_as_if_cast_by_hand(impl, name, dtype):
    """The same bits as for q, k, v in autocast's dtype outside; masks, slopes and sinks keep theirs."""
    q, k, v = inputs()
    with torch.autocast("cpu", dtype=dtype):
        out = attention(q, k, v, impl=impl, **options_of(name))
        expected = off(q.to(dtype), k.to(dtype), v.to(dtype), impl=impl, **options_of(name))
    assert out.dtype == dtype
    assert torch.equal(out, expected)


def test_as_torch_does():
    """Where torch's own attention runs, its result under autocast, bit for bit; float64 is left alone."""
    q, k, v = (torch.randn(1, 2, 67, 8) for _ in "qkv")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        own = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        assert torch.equal(attention(q, k, v), own)
        assert attention(*(x.double() for x in (q, k, v)), window=5, is_causal=True).dtype == torch.float64


@pytest.mark.parametrize("impl", ["auto", "tiled", "sdpa", "reference"])
def test_mixed_dtypes_meet(impl):
    """A float32 q and a bfloat16 cache fit together inside autocast, and outside they don't."""
    q, k, v = inputs(d_v=D)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attention(q, k.bfloat16(), v.half(), impl=impl).dtype == torch.bfloat16


@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
def test_gradients_come_back_in_float32(impl):
    """Also where the backward pass runs inside the region: its sums are not cast either."""
    q, k, v = inputs()
    grads = []
    for inside in (False, True):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = attention(*leaves, is_causal=True, window=5, impl=impl)
            if inside and impl != "reference":  # plain torch operations: whose backward torch says to run outside
                out.sum().backward()
        if not (inside and impl != "reference"):
            out.sum().backward()
        assert all(x.grad.dtype == torch.float32 for x in leaves)
        grads.append([x.grad for x in leaves])
    for x, y in zip(*grads, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("name", ["tiles", "decode", "packed"])
def test_the_tiles_by_themselves(name):
    """Called without the door, inside a region, forward and backward: the same bits as outside it."""
    packed = [x.transpose(1, 2)[0].contiguous() for x in inputs()]
    call, tensors, ends = {
        "tiles": (tiled.attention, inputs(), ()),
        "decode": (tiled.decode, inputs(t_q=2), ()),
        "packed": (tiled.attention_varlen, packed, ([0, 4, 13], [0, 4, 17])),
    }[name]
    found = []
    for enabled in (False, True):
        leaves = [x.clone().requires_grad_() for x in tensors]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = call(*leaves, *ends, is_causal=True)
            out.square().sum().backward()
            without = call(*tensors, *ends, is_causal=True)
        found.append([out, without, *(x.grad for x in leaves)])
    for x, y in zip(*found, strict=True):
        assert x.dtype == torch.float32
        assert torch.equal(x, y)


@pytest.mark.parametrize("impl", ["reference", "tiled"])
def test_packed(impl):
    """Packed sequences: the same."""
    ends = [0, 4, 11]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention_varlen(*PACKED, ends, ends, is_causal=True, impl=impl)
    assert torch.equal(out, attention_varlen(*(x.bfloat16() for x in PACKED), ends, ends, is_causal=True, impl=impl))


def test_operators_called_by_themselves():
    """They know autocast too."""
    q, k, v = (x.requires_grad_() for x in inputs())
    ends = torch.tensor([0, 4, 11])
    options = (True, 5, None, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, lse = torch.ops.attnbook.attention(q, k, v, None, None, None, *options)
        packed, _ = torch.ops.attnbook.attention_varlen(*PACKED, ends, ends, None, None, None, *options)
        out.sum().backward()
    assert (out.dtype, lse.dtype, packed.dtype) == (torch.bfloat16, torch.float32, torch.bfloat16)
    assert torch.equal(out, attention(*(x.bfloat16() for x in (q, k, v)), is_causal=True, window=5, impl="tiled"))
    assert q.grad.dtype == torch.float32


EXPERTS = ((5, 3), (5, 3, 4), (5, 3, 4), (5, 4, 3))


def in_half(x, router, *matrices, **options):
    """`moe` for inputs cast by hand, outside autocast; the router's weights as they are."""
    shared = options.pop("shared", None)
    if shared is not None:
        options["shared"] = tuple(w.bfloat16() for w in shared)
    with torch.autocast("cpu", enabled=False):
        return moe(x.bfloat16(), router, *(w.bfloat16() for w in matrices), **options)


@pytest.mark.parametrize("impl", ["auto", "reference", "tiled"])
def test_experts_are_cast_and_their_router_is_not(impl):
    """x and the matrices, shared ones too, in autocast's dtype; routing in float32; float32 gradients."""
    torch.manual_seed(0)
    x = torch.randn(2, 7, 3, requires_grad=True)
    router, *matrices = (torch.randn(shape, requires_grad=True) for shape in EXPERTS)
    options = {"shared": tuple(torch.randn(shape) for shape in ((2, 3, 4), (2, 3, 4), (2, 4, 3))), "top_k": 2}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, info = moe(x, router, *matrices, impl=impl, **options)
        y.float().sum().backward()
    expected, routing = in_half(x, router, *matrices, impl=impl, **options)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, expected)
    assert info.weights.dtype == torch.float32
    assert torch.equal(info.weights, routing.weights)
    assert [w.grad.dtype for w in (x, router, *matrices)] == [torch.float32] * 5


def test_experts_of_mixed_dtypes_meet_under_autocast():
    """A bfloat16 x from a linear layer and float32 parameters; float64 is left alone; off, nothing is cast."""
    torch.manual_seed(0)
    x, router, *matrices = (torch.randn(shape) for shape in ((7, 3), *EXPERTS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = moe(x.bfloat16(), router, *matrices, top_k=2)
        doubles, _ = moe(x.double(), router.double(), *(w.double() for w in matrices), top_k=2)
    assert torch.equal(y, in_half(x, router, *matrices, top_k=2)[0])
    assert torch.equal(doubles, moe(x.double(), router.double(), *(w.double() for w in matrices), top_k=2)[0])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False), pytest.raises(DTypeError, match="w_gate has"):
        moe(x.bfloat16(), router, *matrices, top_k=2)


def test_compiled_experts_are_cast():
    """The same inside torch.compile."""
    torch.manual_seed(0)
    x, router, *matrices = (torch.randn(shape) for shape in ((7, 3), *EXPERTS))

    def call(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return moe(x, router, *matrices, top_k=2)[0]

    y = torch.compile(call, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(y, in_half(x, router, *matrices, top_k=2)[0])
