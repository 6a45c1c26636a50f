"""The same under autocast, on the meta device, copied, saved, in another dtype, compiled and exported."""

import copy
import functools
import io
import pickle

import pytest
import torch

import attnbook
from attnbook.api import operators
from tests.cases.ways import DTYPES, normal, qkv


@pytest.mark.parametrize("impl", ["reference", "tiled", "sdpa", "auto"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_mixed_dtypes_under_autocast(dtype, impl):
    """float32, float16 and bfloat16 meet in autocast's dtype; float64 stays, and is refused beside others."""
    q, k, v = qkv(5, 7)
    with torch.autocast("cpu", dtype=dtype):
        out = attnbook.attention(q, k.half(), v.bfloat16(), impl=impl)
        expected = attnbook.attention(q.to(dtype), k.half().to(dtype), v.bfloat16().to(dtype), impl=impl)
        assert out.dtype == dtype
        assert torch.equal(out, expected)
        assert attnbook.attention(q.double(), k.double(), v.double(), impl=impl).dtype == torch.float64
        with pytest.raises(attnbook.DTypeError, match=r"k has dtype torch\.float64 but q has"):
            attnbook.attention(q, k.double(), v, impl=impl)


def test_on_the_meta_device_there_are_shapes():
    """Without values: attention, a layer, experts."""
    q, k, v = (x.to("meta") for x in qkv(5, 7, d_v=3))
    out, lse = attnbook.attention(q, k, v, is_causal=True, softcap=3.0, return_lse=True)
    assert (out.shape, lse.shape, out.device.type) == ((2, 2, 5, 3), (2, 2, 5), "meta")
    assert attnbook.attention(q, k, v, impl="tiled").shape == (2, 2, 5, 3)
    assert operators.attention(q, k, v, None, None, None, True, None, None, None)[0].shape == (2, 2, 5, 3)
    layer = attnbook.MultiHeadAttention(8, 2, rope=True, is_causal=True, device="meta")
    assert layer(torch.zeros(2, 5, 8, device="meta")).shape == (2, 5, 8)
    sizes = (7, 3), (4, 3), (4, 3, 5), (4, 3, 5), (4, 5, 3)
    experts = [torch.zeros(size, device="meta") for size in sizes]
    y, info = attnbook.moe(*experts, top_k=2, capacity_factor=1.5)
    assert (y.shape, y.device.type, info.weights.shape, info.loads.shape) == ((7, 3), "meta", (7, 2), (4,))
    with pytest.raises(attnbook.BackendUnavailable, match="there are none on the meta device"):
        attnbook.moe(*experts, top_k=2, impl="reference")


CACHES = {
    "KVCache": attnbook.KVCache,
    "KVCache of capacity": lambda: attnbook.KVCache(9),
    "RingKVCache": lambda: attnbook.RingKVCache(4),
    "PagedKVCache": lambda: attnbook.PagedKVCache(10, 3),
}


def through_torch_save(x):
    """Saved and loaded again."""
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), through_torch_save])
def test_a_copied_cache_is_its_own(copied, name):
    """It answers as the original did, and does not change with it."""
    cache, q = CACHES[name](), normal(2, 4, 1, 5)
    cache.append(*qkv(5)[1:])
    twin, before = copied(cache), attnbook.attend(q, cache)
    cache.append(*qkv(1, seed=5)[1:])
    assert torch.equal(attnbook.attend(q, twin), before)
    assert not torch.equal(attnbook.attend(q, cache), before)
    assert twin.lengths.tolist() == [5, 5]


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_goes_on_outside_inference_mode(name):
    """Its memory is ordinary, whoever filled it first; a query may need a gradient."""
    cache, whole = CACHES[name](), CACHES[name]()
    k, v = qkv(4)[1:]
    for start, mode in ((0, torch.inference_mode), (2, torch.enable_grad), (3, torch.inference_mode)):
        stop = 2 if start == 0 else start + 1
        with mode():
            cache.append(k[:, :, start:stop].clone(), v[:, :, start:stop].clone())
    whole.append(k, v)
    q = normal(2, 4, 1, 5).requires_grad_()
    out = attnbook.attend(q, cache)
    torch.testing.assert_close(out, attnbook.attend(q, whole))
    assert torch.autograd.grad(out.sum(), q)[0].isfinite().all()


LAYERS = {
    "MultiHeadAttention": lambda: attnbook.MultiHeadAttention(8, 4, 2, rope=True, is_causal=True, sinks=True),
    "TransformerBlock": lambda: attnbook.TransformerBlock(8, 4, norm="post"),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), through_torch_save])
def test_a_copied_layer_is_the_same(copied, name):
    """deepcopy, pickle, torch.save; and its state_dict fills another of its kind."""
    layer, x = LAYERS[name](), normal(2, 5, 8)
    assert torch.equal(copied(layer)(x), layer(x))
    other = LAYERS[name]()
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_layer_of_another_dtype(dtype, name):
    """`.to(dtype)`: what comes out has it, and is near."""
    layer, x = LAYERS[name](), normal(2, 5, 8)
    moved = copy.deepcopy(layer).to(dtype)(x.to(dtype))
    assert moved.dtype == dtype
    assert (moved - layer(x)).abs().max() <= 8 * torch.finfo(dtype).eps + 1e-6


# Compiled


COMPILED = {
    "pytorch#103963": {"mask": torch.eye(5, 7, dtype=torch.bool) & (torch.arange(5) != 1)[:, None]},
    "pytorch#144858": {"is_causal": True},
    "transformers#35924": {"is_causal": True, "window": 2},
    "TransformerEngine#2541": {"sinks": torch.tensor([20.0, 0.0]), "softcap": 5.0},
    "aprender#2143": {"alibi_slopes": [0.5, 0.25]},
}


@pytest.fixture
def nothing_compiled_before():
    """Each test compiles anew."""
    torch._dynamo.reset()


@pytest.mark.usefixtures("nothing_compiled_before")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_it_is_the_same(name):
    """One graph, results and gradients as without; no warning."""
    call = functools.partial(attnbook.attention, **COMPILED[name])
    found = []
    for function in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        leaves = [x.requires_grad_() for x in qkv(5, 7)]
        out = function(*leaves)
        found.append((out, *torch.autograd.grad((out * normal(*out.shape, seed=4)).sum(), leaves)))
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain)


@pytest.mark.usefixtures("nothing_compiled_before")
def test_a_layer_is_compiled_without_a_warning_and_exported_for_every_length():
    """RoPE, ALiBi, norms, sinks and a window in one graph; t is a symbol."""
    layer = attnbook.MultiHeadAttention(
        8, 4, 2, rope=True, is_causal=True, sinks=True, qk_norm=True, alibi=True, window=3
    )
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(normal(2, 5, 8)), layer(normal(2, 5, 8)))
    t = torch.export.Dim("t", min=2, max=99)
    exported = torch.export.export(layer, (normal(2, 5, 8),), dynamic_shapes={"x": {1: t}}).module()
    for length in (2, 5, 11):
        torch.testing.assert_close(exported(normal(2, length, 8)), layer(normal(2, length, 8)))
