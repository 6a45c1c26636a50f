"""`attention_varlen(…, impl="triton")`: packed sequences through the door, their operator, and compiled."""

import pytest
import torch

from attnbook import attention_varlen
from tests.api.samples import H_Q, SINKS, inputs
from tests.kernels.device import DEVICE
from tests.kernels.doors import NOISE, assert_same, leaves, moved, there, watch

pytestmark = NOISE

NO_OPTIONS = (False, None, None, None)
"""is_causal, window, softcap, scale."""


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    """Each test compiles anew."""
    torch._dynamo.reset()


ENDS = torch.tensor([0, 4, 4, 9])


def packed(dtype=torch.float32, t=11):
    """q, k, v as (t, h, d)."""
    return [x[0].transpose(0, 1).contiguous() for x in inputs(dtype, t_q=t, t_kv=t)]


@pytest.mark.parametrize(("grad", "how"), [(False, NO_OPTIONS), (True, (True, 3, 2.5, 0.6))])
def test_packed_attention_keeps_the_rules(grad, how):
    """With an empty sequence and rows that belong to none."""
    q, k, v = (there(x, grad) for x in packed())
    others = [there(x, grad) for x in (torch.randn(11, 11), torch.rand(3, H_Q), SINKS)]
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


def test_packed_gradients_equal_the_reference(monkeypatch):
    """Those of q, k, v, slopes and sinks, by the kernels; zero where a row belongs to no sequence."""
    went = []
    watch(monkeypatch, "attnbook.kernels.flash", "varlen_backward", went)
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
    assert went == ["varlen_backward"]


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
