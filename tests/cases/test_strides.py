"""Heads, memory layouts and sizes: who shares keys with whom, strides of 0, views, odd lengths, far addresses."""

import functools
import mmap

import pytest
import torch

from tests.cases.ways import IN_DTYPES, TORCH, TORCH_WITH_LSE, WAYS, Known, normal, qkv, run
from tests.tolerance import assert_refuses, garbage

# Heads


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 2), (6, 2), (6, 3), (5, 1), (3, 3), (16, 8)])
@pytest.mark.parametrize("t_q", [1, 3])
def test_groups_are_contiguous(t_q, n_heads, n_kv_heads, way):
    """onnx#7274: 4 query heads over 2 key heads use [0, 0, 1, 1], not [0, 1, 0, 1]: each value is its head's number."""
    q, k, _ = qkv(t_q, 7, heads=(n_heads, n_kv_heads))
    v = torch.arange(n_kv_heads, dtype=torch.float32)[None, :, None, None].expand(2, -1, 7, 1)
    group = n_heads // n_kv_heads
    expected = [[[h // group] * t_q for h in range(n_heads)]] * 2
    out = run(way, q, k, v)[0][..., 0]
    torch.testing.assert_close(out, torch.tensor(expected).float())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("heads", [(4, 2), (6, 2), (5, 1)])
def test_gradients_of_a_group_are_added(heads, way):
    """A key that three heads share gets the sum of their gradients."""
    Known(*qkv(5, 7, heads=heads), is_causal=True).check(way)


# Strides


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gradient_of_stride_0(dtype, options, way):
    """flash-attention#818: `out.sum().backward()` hands in one number, expanded; the gradients are the same."""
    q, k, v = qkv(5, 7, dtype=dtype)
    one = torch.ones(1, 1, 1, 1, dtype=dtype)
    Known(q, k, v, d_out=one.expand(2, 2, 5, 5), d_lse=torch.zeros(2, 2, 5), **options).check(way)
    expanded, contiguous = (
        torch.autograd.grad(run(way, *leaves, **options)[0], leaves, d_out)
        for leaves, d_out in (
            ([x.clone().requires_grad_() for x in (q, k, v)], one.expand(2, 2, 5, 5)),
            ([x.clone().requires_grad_() for x in (q, k, v)], one.expand(2, 2, 5, 5).contiguous()),
        )
    )
    for a, b in zip(expanded, contiguous, strict=True):
        torch.testing.assert_close(a, b, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("way", TORCH_WITH_LSE)
def test_a_gradient_of_lse_of_stride_0(way):
    """`lse.sum().backward()` likewise; no gradient of the output comes in at all, and none reaches v."""
    leaves = [x.requires_grad_() for x in qkv(5, 7)]
    lse = run(way, *leaves)[1]
    d_q, d_k, d_v = torch.autograd.grad(lse.sum(), leaves, allow_unused=True)
    known = Known(*qkv(5, 7), d_out=torch.zeros(2, 2, 5, 5), d_lse=torch.ones(2, 2, 5)).of(True)[0]
    torch.testing.assert_close(d_q.double(), torch.tensor(known["q"]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(d_k.double(), torch.tensor(known["k"]), rtol=1e-5, atol=1e-6)
    assert d_v is None or (d_v == 0).all()


def positions_first(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def components_first(x):
    return x.transpose(2, 3).contiguous().transpose(2, 3)


def every_other(x):
    room = torch.full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan, dtype=x.dtype)
    room[..., ::2] = x
    return room[..., ::2]


def rows_apart(x):
    room = torch.full((x.shape[0], x.shape[1] + 1, x.shape[2] + 3, x.shape[3] + 1), torch.nan, dtype=x.dtype)
    room[:, 1:, 2:-1, 1:] = x
    return room[:, 1:, 2:-1, 1:]


def batch_last(x):
    return x.movedim(0, -1).contiguous().movedim(-1, 0)


VIEWS = {
    "transposed": positions_first,
    "components first": components_first,
    "sliced along d": every_other,
    "sliced along every axis": rows_apart,
    "batch last": batch_last,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
}


@functools.cache
def plain_call(dtype, is_causal):
    known = Known(*qkv(5, 7, heads=(4, 2), dtype=dtype), is_causal=is_causal)
    known.of(True), known.of(False)
    return known


@pytest.mark.parametrize(("way", "dtype"), [x for x in IN_DTYPES if x[1] in (torch.float32, torch.bfloat16)])
@pytest.mark.parametrize("view", VIEWS)
def test_views(view, dtype, way):
    """pytorch#112577: transposed and sliced q, k, v, incoming gradient too; NaN lies in between and is not read."""
    for is_causal in (False, True):
        known = plain_call(dtype, is_causal)
        seen = object.__new__(Known)
        seen.__dict__ = known.__dict__ | {
            "tensors": [VIEWS[view](x) for x in known.tensors],
            "d_out": VIEWS[view](known.d_out),
        }
        seen.check(way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_expanded(is_causal, way):
    """One sequence or one head, repeated with stride 0, counts as many; its gradient is the sum over them."""
    q, k, v = normal(1, 1, 5, 3), normal(1, 2, 7, 3, seed=1), normal(1, 1, 7, 3, seed=2)
    expanded = q.expand(3, 4, 5, 3), k.expand(3, 2, 7, 3), v.expand(3, 2, 7, 3)
    Known(*expanded, is_causal=is_causal).check(way)
    if way == "numpy":
        return
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    whole = [x.clone().requires_grad_() for x in expanded]
    out = run(way, leaves[0].expand(3, 4, 5, 3), leaves[1].expand(3, 2, 7, 3), leaves[2].expand(3, 2, 7, 3))[0]
    for leaf, x, shape in zip(
        torch.autograd.grad(out.square().sum(), leaves),
        torch.autograd.grad(run(way, *whole)[0].square().sum(), whole),
        (q.shape, k.shape, v.shape),
        strict=True,
    ):
        torch.testing.assert_close(leaf, x.sum_to_size(shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_views_of_what_is_added(kind, way):
    """A mask with strides of 0 and of 2, slopes and sinks that are slices: read where they lie."""
    q, k, v = qkv(5, 7, heads=(4, 2))
    mask = normal(2, 1, 10, 7, seed=5)[:, :, ::2].expand(2, 4, 5, 7)
    mask = mask < 0.8 if kind == "boolean" else mask
    slopes = torch.rand(2, 8, generator=torch.Generator().manual_seed(1))[:, ::2]
    options = {} if way == "sdpa" else {"sinks": normal(8, seed=6)[::2]}
    Known(q, k, v, mask=mask, alibi_slopes=slopes, **options).check(way)


NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Linux's flag; Python knows its name from 3.13 on."""


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("axis", range(4))
def test_addresses_beyond_31_bits(axis, way):
    """Liger#1248, vllm#34279: along one axis the stride is 2³⁰, so the last address passes 2³¹: right all the same.

    The memory is promised by the system and, but for a few pages, never taken.
    """
    stride, dtype = 2**30, torch.float16
    try:
        room = mmap.mmap(-1, (2 * stride + 4096) * 2, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    except OSError as error:
        pytest.skip(f"no 4 GiB of addresses here: {error}")
    memory = torch.frombuffer(room, dtype=dtype)
    q, k, v = (normal(3, 3, 3, 3, seed=i, dtype=dtype) for i in range(3))
    far = []
    for i, x in enumerate((q, k, v)):
        strides = [27, 9, 3, 1]
        strides[axis] = stride
        far.append(memory.as_strided((3, 3, 3, 3), strides, storage_offset=128 * i))
        far[-1].copy_(x)
    known = Known(q, k, v, is_causal=True)
    known.of(True), known.of(False)
    known.tensors = far
    known.check(way)


# Sizes


@functools.cache
def sized(t_q, t_kv, d, d_v, is_causal):
    known = Known(*qkv(t_q, t_kv, b=1, heads=(2, 1), d=d, d_v=d_v), is_causal=is_causal)
    wrong = garbage(*known.tensors, is_causal=is_causal)
    right, baseline = known.of(True)
    assert_refuses(wrong, right["out"], baseline["out"])
    return known


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("d", [40, 59, 80, 111])
@pytest.mark.parametrize(
    ("t_q", "t_kv", "is_causal"), [(97, 97, False), (111, 111, True), (203, 113, True), (113, 203, True)]
)
def test_odd_sizes(t_q, t_kv, is_causal, d, way):
    """flash-attention's tests: lengths and components that are no multiple of any tile."""
    if way == "small tiles" and d != 59:  # thousands of them: one size is enough
        return
    sized(t_q, t_kv, d, d, is_causal).check(way, gradients=way != "small tiles" and d in (40, 111))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("d", "d_v"), [(192, 128), (3, 7), (7, 1), (1, 5)])
@pytest.mark.parametrize("t_q", [1, 23])
def test_values_of_another_size(t_q, d, d_v, way):
    """DeepSeek's heads have 192 components for scores and 128 for values; any pair of sizes is right."""
    sized(t_q, 29, d, d_v, True).check(way)
