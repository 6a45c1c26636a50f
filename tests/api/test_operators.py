"""The operators by the rules of torch.library, and what is compiled or exported equals what is not."""

import shutil

import pytest
import torch
from torch.export import Dim

from attnbook import attention
from attnbook.api import MultiHeadAttention, TransformerBlock, attention_varlen, moe
from attnbook.reference import LearnedPositions, rope
from tests.api.samples import H_Q, OPTIONS, SINKS, SLOPES, T_KV, T_Q, D, inputs, options_of

pytestmark = [
    # torch's own: of any autograd.Function that it compiles, of inductor's imports, of array-api-compat's caches
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"),
]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    """Each test compiles anew."""
    torch._dynamo.reset()


def leaves(tensors):
    """The same numbers, each with a gradient."""
    return [x.clone().requires_grad_() for x in tensors]


def assert_same(call, compiled, make):
    """Results and gradients of `compiled` are those of `call`, for inputs that `make` makes."""
    found = []
    for function in (call, compiled):
        tensors = make()
        out = function(*tensors)
        outs = out if isinstance(out, tuple) else (out,)
        needs = [x for x in tensors if x.requires_grad]
        total = sum((x * torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape)).sum() for x in outs)
        found.append((*outs, *torch.autograd.grad(total, needs)))
    for plain, traced in zip(*found, strict=True):
        assert plain.isfinite().all()
        torch.testing.assert_close(traced, plain)


# By the rules of torch.library


NO_OPTIONS = (False, None, None, None)
"""is_causal, window, softcap, scale."""


def operator_sample(dtype=torch.float32, grad=True, mask=None, slopes=None, sinks=None, how=NO_OPTIONS, **sizes):
    """The arguments of the operator."""
    return *(x.requires_grad_(grad) for x in inputs(dtype, **sizes)), mask, slopes, sinks, *how


SAMPLES = {
    "plain": operator_sample(),
    "no gradient": operator_sample(grad=False),
    "causal": operator_sample(how=(True, None, None, None)),
    "window, cap, scale": operator_sample(how=(True, 5, 2.5, 0.6)),
    "boolean mask": operator_sample(mask=OPTIONS["boolean mask"]["mask"]),
    "all with gradients": operator_sample(
        mask=torch.randn(T_Q, T_KV).requires_grad_(),
        slopes=SLOPES.clone().requires_grad_(),
        sinks=SINKS.clone().requires_grad_(),
        how=(True, 5, 2.5, 0.6),
    ),
    "only the sinks' gradient": operator_sample(grad=False, sinks=SINKS.clone().requires_grad_()),
    "float64": operator_sample(torch.float64),
    "bfloat16": operator_sample(torch.bfloat16),
    "no batch": operator_sample(b=0),
    "no queries": operator_sample(t_q=0),
    "no keys": operator_sample(t_kv=0),
    "one query, many keys": operator_sample(t_q=1, t_kv=257),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_attention_keeps_the_rules(name):
    """Schema, autograd registration, fake kernel, and tracing with fixed and dynamic shapes."""
    torch.library.opcheck(torch.ops.attnbook.attention.default, SAMPLES[name])


ENDS = torch.tensor([0, 4, 4, 9])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("how", [(False, None, None, None), (True, 3, 2.5, 0.6)])
def test_packed_attention_keeps_the_rules(grad, how):
    """With an empty sequence and rows that belong to none."""
    q, k, v = (x[0].transpose(0, 1).contiguous().requires_grad_(grad) for x in inputs(t_q=11, t_kv=11))
    others = (torch.randn(11, 11), torch.rand(3, H_Q), SINKS.clone())
    for x in others:
        x.requires_grad_(grad)
    torch.library.opcheck(torch.ops.attnbook.attention_varlen.default, (q, k, v, ENDS, ENDS, *others, *how))


def experts_sample(grad=True):
    x = torch.randn(7, 3, requires_grad=grad)
    weights = torch.rand(7, 2, requires_grad=grad)
    chosen = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(i))[:2] for i in range(7)])
    return x, chosen, weights, *(torch.randn(5, *shape, requires_grad=grad) for shape in ((3, 4), (3, 4), (4, 3)))


@pytest.mark.parametrize("grad", [False, True])
def test_experts_keep_the_rules(grad):
    """With and without gradients; and where the experts are frozen."""
    sample = experts_sample(grad)
    torch.library.opcheck(torch.ops.attnbook.moe_experts.default, sample)
    torch.library.opcheck(torch.ops.attnbook.moe_experts.default, (*sample[:3], *(x.detach() for x in sample[3:])))


# Compiled


@pytest.mark.parametrize("name", OPTIONS)
def test_compiled_attention(name):
    """One graph without a break; out, lse and gradients equal the uncompiled ones."""
    options = options_of(name)

    def call(q, k, v):
        return attention(q, k, v, return_lse=name != "none", **options)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(call, compiled, lambda: leaves(inputs()))


@pytest.mark.parametrize("impl", ["tiled", "sdpa"])
@pytest.mark.parametrize("name", ["none", "causal", "boolean mask"])
def test_a_named_implementation_compiles(impl, name):
    """The tiles as an operator; torch's own with what keeps a NaN in its rows, as values cannot be looked at."""
    options = options_of(name)

    def call(q, k, v):
        return attention(q, k, v, impl=impl, **options)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(call, compiled, lambda: leaves(inputs()))
    q, k, v = inputs()
    v[:, :, -1] = torch.nan
    torch.testing.assert_close(compiled(q, k, v), call(q, k, v), equal_nan=True)


def test_gradients_of_options_compiled():
    """Those of mask, slopes and sinks."""

    def call(q, k, v, mask, slopes, sinks):
        return attention(q, k, v, mask=mask, alibi_slopes=slopes, sinks=sinks, is_causal=True, return_lse=True)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(call, compiled, lambda: leaves([*inputs(), torch.ones(T_Q, T_KV), SLOPES, SINKS]))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"is_causal": True, "window": 5}])
def test_one_graph_for_every_length(options):
    """With dynamic=True nothing is compiled again when lengths change."""
    graphs = []

    def backend(graph, tensors):
        graphs.append(graph)
        return graph.forward

    def call(q, k, v):
        return attention(q, k, v, **options)

    compiled = torch.compile(call, fullgraph=True, backend=backend, dynamic=True)
    for t_q, t_kv in ((13, 17), (19, 23), (29, 31)):
        tensors = inputs(t_q=t_q, t_kv=t_kv, d_v=D)
        torch.testing.assert_close(compiled(*tensors), call(*tensors))
    assert len(graphs) == 1


def operators_in(graph):
    return {str(node.target) for node in graph.nodes if node.op == "call_function"}


def test_what_a_compiled_call_becomes():
    """One operator of ours; torch's own alone where no key is hidden and keys are enough."""
    graphs = []

    def backend(graph, tensors):
        graphs.append(operators_in(graph.graph))
        return graph.forward

    q = torch.randn(1, 2, 67, 8)
    for options in ({}, {"is_causal": True}):
        torch.compile(lambda q, o=options: attention(q, q, q, **o), fullgraph=True, backend=backend, dynamic=False)(q)
    assert any("scaled_dot_product_attention" in name for name in graphs[0])
    assert any("attnbook.attention" in name for name in graphs[1])
    assert not any("scaled_dot_product_attention" in name for name in graphs[1])


def test_packed_sequences_compiled():
    """Where sequences end may change without compiling again."""
    graphs = []

    def backend(graph, tensors):
        graphs.append(graph)
        return graph.forward

    def call(q, k, v, ends):
        return attention_varlen(q, k, v, ends, ends, is_causal=True, return_lse=True)

    compiled = torch.compile(call, fullgraph=True, backend=backend)
    tensors = [x[0].transpose(0, 1).contiguous() for x in inputs(t_q=11, t_kv=11)]
    for ends in (ENDS, torch.tensor([0, 1, 7, 11])):
        outs = [function(*tensors, ends) for function in (call, compiled)]
        torch.testing.assert_close(outs[1], outs[0])
    assert len(graphs) == 1
    whole = torch.tensor([0, 4, 9, 11])  # a row of no sequence has lse −inf, whose sum is no use
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(call, compiled, lambda: [*leaves(tensors), whole])


def test_packed_ends_are_checked_when_run():
    """A compiled call raises the same error, when it sees the values."""
    compiled = torch.compile(lambda q, e: attention_varlen(q, q, q, e, e), fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match=r"cu_seqlens_q\[2\] is 5 but cu_seqlens_q\[1\] is 7: they must not fall"):
        compiled(torch.zeros(11, 2, 3), torch.tensor([0, 7, 5]))


def test_experts_compiled():
    """The router is traced, the experts are one operator."""

    def call(x, *matrices):
        y, info = moe(x, *matrices, top_k=2)
        return y, info.aux_loss

    shapes = ((7, 3), (5, 3), (5, 3, 4), (5, 3, 4), (5, 4, 3))
    tensors = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(call, compiled, lambda: leaves(tensors))


def test_a_block_compiled():
    """A whole layer, whose attention is the door's."""
    block = TransformerBlock(16, 4, n_kv_heads=2, is_causal=True, window=5, rope=True)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert_same(block, compiled, lambda: leaves([torch.randn(2, 11, 16, generator=torch.Generator().manual_seed(1))]))


@pytest.mark.parametrize("positions", [torch.arange(17), torch.arange(34).view(2, 17) % 19])
def test_positions_compiled(positions):
    """A learned table and RoPE, positions given: they are values, which nothing may look at."""
    table = LearnedPositions(23, 8)

    def call(x, positions):
        return rope(x + table(positions)[..., None, :, :], positions)

    x = torch.randn(2, 3, 17, 8, generator=torch.Generator().manual_seed(1))
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, positions), call(x, positions))
    with pytest.raises(IndexError):
        compiled(x, positions + 23)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler: no g++ here")
def test_inductor():
    """The default backend, forward and backward, with something before and after to fuse."""

    def call(q, k, v):
        return attention(torch.relu(q) + 1, k, v, is_causal=True, window=5, sinks=SINKS) * 2

    assert_same(call, torch.compile(call, fullgraph=True), lambda: leaves(inputs()))


# Exported


class Attends(torch.nn.Module):
    """A module that calls the door."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return attention(q, k, v, **self.options)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"is_causal": True, "window": 5, "return_lse": True}])
def test_exported(options):
    """A program for any batch and length; it gives what the module gives."""
    t, b = Dim("t", min=2, max=4096), Dim("b", min=1, max=64)
    axes = {0: b, 2: t}
    module = Attends(**options)
    tensors = inputs(t_q=17, d_v=D)
    program = torch.export.export(module, tuple(tensors), dynamic_shapes=(axes, axes, axes))
    assert any("attnbook.attention" in name for name in operators_in(program.graph))
    for length, batch in ((17, 2), (2, 1), (31, 5)):
        tensors = inputs(t_q=length, t_kv=length, d_v=D, b=batch)
        torch.testing.assert_close(program.module()(*tensors), module(*tensors))


LAYERS = {
    "block": lambda: TransformerBlock(16, 4, n_kv_heads=2, is_causal=True, window=5, rope=True),
    "heads with rope": lambda: MultiHeadAttention(16, 4, rope=True, is_causal=True),
    "heads with slopes and sinks": lambda: MultiHeadAttention(16, 4, alibi=True, sinks=True, qk_norm=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_exported(name):
    """A program for any batch and length."""
    layer, x = LAYERS[name](), torch.randn(2, 17, 16, generator=torch.Generator().manual_seed(1))
    axes = {0: Dim("b", min=1, max=64), 1: Dim("t", min=2, max=4096)}
    program = torch.export.export(layer, (x,), dynamic_shapes=(axes,))
    for length, batch in ((17, 2), (2, 1), (31, 5)):
        x = torch.randn(batch, length, 16)
        torch.testing.assert_close(program.module()(x), layer(x))


def test_exported_with_a_mask():
    """A mask of symbolic lengths, and an error where it does not fit."""
    t = Dim("t", min=2, max=4096)

    class Masked(torch.nn.Module):
        def forward(self, q, mask):
            return attention(q, q, q, mask=mask)

    q, mask = torch.randn(1, 2, 17, 8), torch.ones(17, 17, dtype=torch.bool).tril()
    program = torch.export.export(Masked(), (q, mask), dynamic_shapes=({2: t}, {0: t, 1: t}))
    q, mask = torch.randn(1, 2, 5, 8), torch.ones(5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(program.module()(q, mask), attention(q, q, q, is_causal=True))
    with pytest.raises(Exception, match="mask has length 16 along axis t_kv but the scores have 17"):
        torch.export.export(Masked(), (torch.randn(1, 2, 17, 8), torch.ones(17, 16)))
