"""The operator of attention with the kernels inside: the rules of torch.library, torch.compile, autocast.

Only the kernels are interpreted: torch.compile, to which an operator is opaque, works around them as on a GPU.
"""

import pytest
import torch

from attnbook import attention
from tests.api.samples import OPTIONS, SINKS, SLOPES, T_KV, T_Q, inputs, options_of
from tests.kernels.device import DEVICE
from tests.kernels.doors import NOISE, assert_same, leaves, moved, there

pytestmark = NOISE


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    """Each test compiles anew."""
    torch._dynamo.reset()


NO_OPTIONS = (False, None, None, None)
"""is_causal, window, softcap, scale."""


def operator_sample(dtype=torch.float32, grad=True, mask=None, slopes=None, sinks=None, how=NO_OPTIONS, **sizes):
    """The arguments of the operator, with the kernels asked for."""
    others = [x if x is None else there(x, grad and x.is_floating_point()) for x in (mask, slopes, sinks)]
    q, k, v = (there(x, grad) for x in inputs(dtype, **{"b": 1} | sizes))
    return q, k, v, *others, *how, "triton"


SAMPLES = {
    "no gradient": {"grad": False},
    "boolean mask": {"mask": OPTIONS["boolean mask"]["mask"][:1], "dtype": torch.bfloat16},
    "all with gradients": {"mask": torch.randn(T_Q, T_KV), "slopes": SLOPES, "sinks": SINKS,
                           "how": (True, 5, 2.5, 0.6)},
    "no batch": {"b": 0},
    "no queries": {"t_q": 0},
    "no keys": {"t_kv": 0},
    "one query, many keys": {"t_q": 1, "t_kv": 257, "b": 1, "grad": False, "dtype": torch.float16},
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_attention_keeps_the_rules(name):
    """Schema, autograd registration, fake kernel, and tracing with fixed and dynamic shapes."""
    torch.library.opcheck(torch.ops.attnbook.attention.default, operator_sample(**SAMPLES[name]))


@pytest.mark.parametrize("name", ["none", "window", "sinks"])
def test_compiled(name):
    """One graph without a break; out, lse and gradients equal the uncompiled ones."""
    options = moved(options_of(name))

    def call(q, k, v):
        return attention(q, k, v, impl="triton", return_lse=name != "none", **options)

    assert_same(call, torch.compile(call, fullgraph=True, backend="aot_eager"), lambda: leaves(inputs(b=1)))


def test_one_graph_for_every_length():
    """With dynamic=True nothing is compiled again when lengths change."""
    graphs = []

    def backend(graph, tensors):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    def call(q, k, v):
        return attention(q, k, v, is_causal=True, window=5, impl="triton")

    compiled = torch.compile(call, fullgraph=True, backend=backend, dynamic=True)
    for t_q, t_kv in ((13, 17), (19, 23), (29, 31)):
        tensors = [x.to(DEVICE) for x in inputs(t_q=t_q, t_kv=t_kv)]
        torch.testing.assert_close(compiled(*tensors), call(*tensors))
    assert len(graphs) == 1
    assert any("attnbook.attention" in target for target in graphs[0])


def test_inductor():
    """The default backend, forward and backward, with something before and after to fuse."""

    def call(q, k, v):
        return attention(torch.relu(q) + 1, k, v, is_causal=True, sinks=SINKS.to(DEVICE), impl="triton") * 2

    assert_same(call, torch.compile(call, fullgraph=True), lambda: leaves(inputs(b=1)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    """The same bits as for q, k, v cast by hand; gradients in the dtype of the leaves, sums in float32."""
    q, k, v = leaves(inputs(b=1))
    options = moved(options_of("all")) | {"mask": None}
    with torch.autocast(DEVICE, dtype=dtype):
        out = attention(q, k, v, impl="triton", **options)
        alone = attention(q.detach(), k.detach(), v.detach(), impl="triton", **options)
    expected = attention(q.to(dtype), k.to(dtype), v.to(dtype), impl="triton", **options)
    assert out.dtype == alone.dtype == dtype
    assert torch.equal(out, expected)
    assert torch.equal(alone, expected)
    for got, right in zip(
        torch.autograd.grad(out.float().square().sum(), (q, k, v)),
        torch.autograd.grad(expected.float().square().sum(), (q, k, v)),
        strict=True,
    ):
        assert got.dtype == torch.float32
        assert torch.equal(got, right)
