"""The operators with the kernels inside: the rules of torch.library, torch.compile, autocast; packed sequences.

Only the kernels are interpreted: torch.compile, to which an operator is opaque, works around them as on a GPU.
"""

import pytest
import torch

from attnbook import attention, attention_varlen
from tests.api.samples import H_Q, OPTIONS, SINKS, SLOPES, T_KV, T_Q, inputs, options_of
from tests.kernels.device import DEVICE
from tests.kernels.doors import NOISE, assert_same, leaves, moved

pytestmark = NOISE


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    """Each test compiles anew."""
    torch._dynamo.reset()


NO_OPTIONS = (False, None, None, None)
"""is_causal, window, softcap, scale."""


def operator_sample(dtype=torch.float32, grad=True, mask=None, slopes=None, sinks=None, how=NO_OPTIONS, **sizes):
    """The arguments of the operator, with the kernels asked for."""
    q, k, v = (x.to(DEVICE).requires_grad_(grad) for x in inputs(dtype, **sizes))
    others = (x if x is None else x.to(DEVICE).requires_grad_(grad and x.is_floating_point())
              for x in (mask, slopes, sinks))  # fmt: skip
    return q, k, v, *others, *how, "triton"


SAMPLES = {
    "no gradient": {"grad": False},
    "boolean mask": {"mask": OPTIONS["boolean mask"]["mask"], "dtype": torch.bfloat16},
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


@pytest.mark.parametrize("name", ["none", "boolean mask and causal", "all"])
def test_compiled(name):
    """One graph without a break; out, lse and gradients equal the uncompiled ones."""
    options = moved(options_of(name))

    def call(q, k, v):
        return attention(q, k, v, impl="triton", return_lse=name != "none", **options)

    assert_same(call, torch.compile(call, fullgraph=True, backend="aot_eager"), lambda: leaves(inputs()))


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

    assert_same(call, torch.compile(call, fullgraph=True), lambda: leaves(inputs()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    """The same bits as for q, k, v cast by hand; gradients in the dtype of the leaves, sums in float32."""
    q, k, v = leaves(inputs())
    options = moved(options_of("all"))
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


# Packed


ENDS = torch.tensor([0, 4, 4, 9])


def packed(dtype=torch.float32, t=11):
    """q, k, v as (t, h, d)."""
    return [x[0].transpose(0, 1).contiguous() for x in inputs(dtype, t_q=t, t_kv=t)]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("how", [NO_OPTIONS, (True, 3, 2.5, 0.6)])
def test_packed_attention_keeps_the_rules(grad, how):
    """With an empty sequence and rows that belong to none."""
    q, k, v = (x.to(DEVICE).requires_grad_(grad) for x in packed())
    others = [torch.randn(11, 11), torch.rand(3, H_Q), SINKS.clone()]
    others = [x.to(DEVICE).requires_grad_(grad) for x in others]
    ends = ENDS.to(DEVICE)
    torch.library.opcheck(torch.ops.attnbook.attention_varlen.default, (q, k, v, ends, ends, *others, *how, "triton"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"is_causal": True, "window": 3}, {"softcap": 2.5, "sinks": SINKS}])
def test_packed_attention_equals_the_reference(dtype, options):
    """Ends as a list, a tensor, or a tensor of another dtype; rows of no sequence are 0, with lse −inf."""
    options = moved({name: x.to(dtype) if torch.is_tensor(x) else x for name, x in options.items()})
    q, k, v = (x.to(DEVICE) for x in packed(dtype))
    expected, of_lse = attention_varlen(q, k, v, ENDS, ENDS, return_lse=True, impl="reference", **options)
    for ends in (ENDS.tolist(), ENDS.to(DEVICE), ENDS.int()):
        out, lse = attention_varlen(q, k, v, ends, ends, return_lse=True, impl="triton", **options)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(lse, of_lse, rtol=1e-5, atol=1e-5)
    assert (out[9:] == 0).all()
    assert (lse[9:] == -torch.inf).all()


def test_packed_gradients_equal_the_reference():
    """Those of q, k, v, slopes and sinks; zero where a row belongs to no sequence."""
    slopes = torch.rand(3, H_Q)
    found = []
    for impl in ("triton", "reference"):
        q, k, v, own_slopes, sinks = leaves([*packed(), slopes, SINKS])
        out, lse = attention_varlen(
            q, k, v, ENDS, ENDS, is_causal=True, alibi_slopes=own_slopes, sinks=sinks, return_lse=True, impl=impl
        )
        total = (out * torch.linspace(-1, 1, out.numel(), device=DEVICE).reshape(out.shape)).sum()
        found.append(torch.autograd.grad(total + lse[:9].sum(), (q, k, v, own_slopes, sinks)))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert (found[0][0][9:] == 0).all()


def test_packed_sequences_compiled():
    """Where sequences end may change without compiling again; a wrong end is an error when it is seen."""
    graphs = []

    def backend(graph, tensors):
        graphs.append(graph)
        return graph.forward

    def call(q, k, v, ends):
        return attention_varlen(q, k, v, ends, ends, is_causal=True, return_lse=True, impl="triton")

    compiled = torch.compile(call, fullgraph=True, backend=backend)
    tensors = [x.to(DEVICE) for x in packed()]
    for ends in (ENDS, torch.tensor([0, 1, 7, 11])):
        outs = [function(*tensors, ends.to(DEVICE)) for function in (call, compiled)]
        torch.testing.assert_close(outs[1], outs[0])
    assert len(graphs) == 1
    with pytest.raises(ValueError, match=r"cu_seqlens_q\[2\] is 5 but cu_seqlens_q\[1\] is 7: they must not fall"):
        compiled(*tensors, torch.tensor([0, 7, 5, 11]).to(DEVICE))
    torch._dynamo.reset()
    whole = torch.tensor([0, 4, 9, 11]).to(DEVICE)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(call, compiled, lambda: [*leaves(packed()), whole])
