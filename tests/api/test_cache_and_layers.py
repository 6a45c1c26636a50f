"""Caches, layers and experts through the door: as the reference, with the implementation that was named."""

import importlib
import inspect

import pytest
import torch

from attnbook import api, reference
from attnbook.errors import BackendUnavailable, ShapeError

CACHES = {
    "contiguous": api.KVCache,
    "of a capacity": lambda: api.KVCache(capacity=19),
    "ring": lambda: api.RingKVCache(window=5),
    "paged": lambda: api.PagedKVCache(n_pages=17, page_size=4),
}


def tensors(t, b=2):
    g = torch.Generator().manual_seed(1)
    return [torch.randn(b, h, t, 8, generator=g) for h in (4, 2, 2)]


@pytest.mark.parametrize("impl", ["auto", "reference", "tiled", "sdpa"])
@pytest.mark.parametrize("name", CACHES)
def test_token_by_token_equals_all_at_once(name, impl):
    """A prompt of 7, a chunk of 3, then one token after another."""
    q, k, v = tensors(17)
    options = {"window": 5} if name == "ring" else {}
    whole = api.attention(q, k, v, is_causal=True, **options)
    cache = CACHES[name]()
    start = 0
    for count in (7, 3, 1, 1, 1, 1, 1, 1, 1):
        new = slice(start, start + count)
        cache.append(k[:, :, new], v[:, :, new])
        torch.testing.assert_close(api.attend(q[:, :, new], cache, impl=impl), whole[:, :, new])
        start += count


def test_attend_passes_everything_on():
    """Options, lse, the implementation's name; errors of the cache and of the door."""
    q, k, v = tensors(7)
    cache = api.KVCache()
    with pytest.raises(ValueError, match="empty"):
        api.attend(q, cache)
    cache.append(k, v)
    options = {"softcap": 2.0, "sinks": torch.ones(4), "window": 3, "mask": torch.arange(7) != 2}
    found = api.attend(q, cache, return_lse=True, **options)
    torch.testing.assert_close(found, api.attention(q, k, v, is_causal=True, return_lse=True, **options))
    torch.testing.assert_close(api.attend(q, cache, is_causal=False), api.attention(q, k, v))
    with pytest.raises(BackendUnavailable, match="sdpa has no softcap"):
        api.attend(q, cache, softcap=2.0, impl="sdpa")
    with pytest.raises(ValueError, match="impl is 'fast'"):
        api.attend(q, cache, impl="fast")
    with pytest.raises(ShapeError, match="the newest tokens"):
        api.attend(torch.cat([q, q], 2), cache)


LAYERS = {
    "causal": {"is_causal": True},
    "grouped, rope, window": {"n_kv_heads": 2, "is_causal": True, "rope": True, "window": 5},
    "everything": {"alibi": True, "sinks": True, "softcap": 3.0, "is_causal": True, "qk_norm": True},
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("layer", ["MultiHeadAttention", "TransformerBlock"])
def test_layers_equal_the_references(name, layer):
    """The same parameters under the same names, the same results and gradients."""
    torch.manual_seed(3)
    plain = getattr(reference, layer)(32, 4, **LAYERS[name])
    quick = getattr(api, layer)(32, 4, **LAYERS[name])
    quick.load_state_dict(plain.state_dict())
    x = torch.randn(2, 19, 32)
    found = []
    for module in (plain, quick):
        y = module(x)
        y.square().sum().backward()
        found.append([y, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("layer", ["MultiHeadAttention", "TransformerBlock"])
def test_layers_call_the_door(layer, monkeypatch):
    """Their attention is the public one, in a block as well; with a cache too."""
    calls = []

    def noting(run, name):
        def noted(*args, **options):
            calls.append(name)
            return run(*args, **options)

        return noted

    door = importlib.import_module("attnbook.api.attention")
    for place, name in ((door.tiled, "attention"), (door.tiled, "decode"), (door.reference, "attention")):
        monkeypatch.setattr(place, name, noting(getattr(place, name), name))
    module = getattr(api, layer)(32, 4, is_causal=True, window=5)
    module(torch.randn(2, 19, 32))
    assert calls == ["attention"]
    cache = api.KVCache()
    out = [module(x, cache=cache) for x in torch.randn(2, 19, 32).split(1, dim=1)]
    assert len(out) == 19
    assert len(calls) > 1


def experts(dtype=torch.float32):
    g = torch.Generator().manual_seed(2)
    shapes = ((7, 3), (5, 3), (5, 3, 4), (5, 3, 4), (5, 4, 3))
    return [torch.randn(shape, generator=g).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("impl", ["auto", "tiled"])
@pytest.mark.parametrize(
    "options",
    [{"top_k": 2}, {"top_k": 1, "renormalize": False}, {"top_k": 3, "scoring": "sigmoid"},
     {"top_k": 2, "capacity_factor": 0.7}, {"top_k": 2, "top_k_before_scoring": True, "routed_scale": 2.5}],
    ids=str,
)  # fmt: skip
def test_experts_equal_the_references(impl, options):
    """Results, routing and gradients, with every option passed on."""
    found = []
    for name in ("reference", impl):
        tensors = experts()
        y, info = api.moe(*tensors, impl=name, **options)
        grads = torch.autograd.grad(y.square().sum() + info.aux_loss, tensors)
        found.append((y, info.weights, info.experts, info.loads, info.dropped, info.aux_loss, *grads))
    torch.testing.assert_close(*found)


def test_shared_experts_and_a_bias():
    """The two options that bring tensors."""
    tensors = experts()
    shared = tuple(torch.randn(2, *shape) for shape in ((3, 4), (3, 4), (4, 3)))
    options = {"top_k": 2, "shared": shared, "selection_bias": torch.linspace(-1, 1, 5)}
    found = [api.moe(*tensors, impl=impl, **options) for impl in ("reference", "auto")]
    torch.testing.assert_close(found[0][0], found[1][0])
    assert (found[0][0] - api.moe(*tensors, top_k=2)[0]).abs().max() > 0.1


@pytest.mark.parametrize("layer", [api.MultiHeadAttention, api.TransformerBlock])
def test_help_names_every_option(layer):
    """Of the layer itself and of its call: the docstring is what `help` shows first."""
    made = set(inspect.signature(layer).parameters) - {"d_model", "n_heads", "attention"}
    called = set(inspect.signature(layer.forward).parameters) - {"self", "x"}
    if layer is api.MultiHeadAttention:
        made.add("n_heads")
    missing = [name for name in made | called if f"`{name}`" not in layer.__doc__]
    assert not missing


def test_too_many_experts_are_asked_for():
    """top_k over the number of experts: the same error from each."""
    for impl in ("reference", "tiled", "auto"):
        with pytest.raises(ValueError, match="top_k is 6"):
            api.moe(*experts(), top_k=6, impl=impl)
