"""What a user may legally hand to the door, and few tests try: gradients here and there, lists, views, huge numbers."""

import functools
import gc
import weakref

import numpy as np
import pytest
import torch

import attnbook
from tests.cases.ways import DTYPES, TORCH, TORCH_WITH_LSE, WAYS, Known, normal, qkv, run

BIAS = torch.tensor([0.5, -1.0])
SLOPES = torch.tensor([0.5, 0.25])

# Gradients


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("wanted", ["q", "k", "v", "mask", "alibi_slopes", "sinks"])
def test_one_gradient_alone(wanted, way):
    """Where a single input needs one, it is what it is among others, and nothing else gets any."""
    given = dict(zip("qkv", qkv(5, 7), strict=True))
    options = {"mask": normal(5, 7, seed=9), "alibi_slopes": SLOPES} | ({} if way == "sdpa" else {"sinks": BIAS})
    if wanted == "sinks" and way == "sdpa":
        return
    known = Known(*given.values(), is_causal=True, **options).check(way)[2]
    leaves = {name: x.clone().requires_grad_(name == wanted) for name, x in (given | options).items()}
    case = Known(*given.values())
    out, lse = run(way, **leaves, is_causal=True)
    total = (out * case.d_out).sum() + (0 if lse is None else (lse * case.d_lse).sum())
    total.backward()
    torch.testing.assert_close(leaves[wanted].grad, known[wanted], rtol=1e-4, atol=1e-6)
    assert [name for name, x in leaves.items() if x.grad is not None] == [wanted]


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("options", [{}, {"is_causal": True, "window": 3}], ids=str)
def test_without_gradients(options, way):
    """Inside no_grad and inference_mode the numbers are the same, and nothing is recorded."""
    tensors = [x.requires_grad_() for x in qkv(5, 7)]
    out = run(way, *tensors, **options)[0]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = run(way, *tensors, **options)[0]
        assert not found.requires_grad
        torch.testing.assert_close(found.clone(), out, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("bad", [False, True])
def test_no_input_is_written_to(bad, way):
    """Not q, k, v, mask, slopes, sinks nor the gradient from above, also where there is a NaN to be contained."""
    tensors = dict(zip("qkv", qkv(5, 7), strict=True)) | {"mask": normal(5, 7, seed=9), "alibi_slopes": SLOPES.clone()}
    if way != "sdpa":
        tensors["sinks"] = BIAS.clone()
    if bad:
        tensors["k"][0, 0, 3] = torch.nan
    before = {name: x.clone() for name, x in tensors.items()}
    versions = {name: x._version for name, x in tensors.items()}
    leaves = {name: x.requires_grad_() for name, x in tensors.items()}
    out = run(way, **leaves, is_causal=True)[0]
    d_out = normal(*out.shape, seed=3)
    kept, out_before = d_out.clone(), out.detach().clone()
    out.backward(d_out)
    assert torch.equal(d_out, kept)
    torch.testing.assert_close(out.detach(), out_before, rtol=0, atol=0, equal_nan=True)
    for name, x in tensors.items():
        torch.testing.assert_close(x.detach(), before[name], rtol=0, atol=0, equal_nan=True)
        assert x._version == versions[name], name


@pytest.mark.parametrize("way", [way for way in TORCH if way not in ("sdpa", "auto", "reference")])
def test_a_second_derivative_is_an_error_not_a_zero(way):
    """The tiles have none, and say so; the reference has one."""
    tensors = [x.requires_grad_() for x in qkv(3, 4, dtype=torch.float64)]
    grad = torch.autograd.grad(run(way, *tensors)[0].square().sum(), tensors[0], create_graph=True)[0]
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), tensors[1])


@pytest.mark.parametrize("way", TORCH)
def test_nothing_is_kept_alive(way):
    """Once output and inputs are let go, no cycle holds them until the collector comes."""
    run(way, *qkv(5, 7))  # what is loaded late is loaded
    gc.disable()
    try:
        tensors = [x.requires_grad_() for x in qkv(5, 7)]
        out = run(way, *tensors, is_causal=True)[0]
        watched = [weakref.ref(x) for x in (*tensors, out)]
        out.sum().backward()
        del tensors, out
        assert [x() for x in watched] == [None] * 4
    finally:
        gc.enable()


def test_a_transform_of_torch_func():
    """`torch.func.grad` is that of autograd, of attention and of experts."""
    q, k, v = qkv(5, 7)
    leaf = q.clone().requires_grad_()
    found = torch.func.grad(lambda q: attnbook.attention(q, k, v, is_causal=True).square().sum())(q)
    expected = torch.autograd.grad(attnbook.attention(leaf, k, v, is_causal=True).square().sum(), leaf)[0]
    torch.testing.assert_close(found, expected)
    x, router, *experts = (normal(*s, seed=i) for i, s in enumerate(((7, 3), (4, 3), (4, 3, 5), (4, 3, 5), (4, 5, 3))))
    leaf = experts[1].clone().requires_grad_()
    call = functools.partial(attnbook.moe, top_k=2)
    found = torch.func.grad(lambda w: call(x, router, experts[0], w, experts[2])[0].sum())(experts[1])
    expected = torch.autograd.grad(call(x, router, experts[0], leaf, experts[2])[0].sum(), leaf)[0]
    torch.testing.assert_close(found, expected)
    with pytest.raises(attnbook.BackendUnavailable, match=r"torch\.vmap"):
        torch.vmap(lambda x: call(x, router, *experts)[0])(x[:, None])
    with pytest.raises(attnbook.BackendUnavailable, match=r"torch\.func"):
        torch.func.grad(lambda w: call(x, router, experts[0], w, experts[2], impl="tiled")[0].sum())(experts[1])


@pytest.mark.parametrize("way", TORCH_WITH_LSE)
def test_lse_has_no_gradient_where_it_is_a_constant(way):
    """A row that sees nothing: lse −inf, and no NaN from an lse that the loss takes as it is."""
    tensors = [x.requires_grad_() for x in qkv(3, 4)]
    mask = torch.tensor([True, False, True])[:, None]
    lse = run(way, *tensors, mask=mask)[1]
    for grad in torch.autograd.grad(lse.exp().sum(), tensors, allow_unused=True):
        assert grad is None or grad.isfinite().all()


# Lists, arrays, numbers of NumPy

NUMBERS = {
    "list": list,
    "tuple": tuple,
    "float64 array": np.array,
    "float32 array": functools.partial(np.array, dtype=np.float32),
    "array that runs backwards": lambda x: np.array(x[::-1])[::-1],
    "list of tensors": lambda x: [torch.tensor(n) for n in x],
}


def read_only(x):
    """An array that cannot be written to."""
    x = np.array(x)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("kind", [*NUMBERS, "read-only array"])
def test_slopes_and_sinks_of_any_library(kind, impl):
    """They are settings more often than tensors: what they are made of does not matter, through each door."""
    make = read_only if kind == "read-only array" else NUMBERS[kind]
    options = {"alibi_slopes": make([0.3, 0.1]), "sinks": make([0.7, -1.1])}  # no half-precision numbers
    tensors = {"alibi_slopes": torch.tensor([0.3, 0.1]), "sinks": torch.tensor([0.7, -1.1])}
    q, k, v = qkv(5, 7, b=1)
    whole = attnbook.attention(q, k, v, **tensors, impl=impl)
    assert torch.equal(attnbook.attention(q, k, v, **options, impl=impl), whole)
    packed = [x[0].transpose(0, 1) for x in (q, k, v)]
    found = attnbook.attention_varlen(*packed, [0, 5], [0, 7], **options, impl=impl)
    torch.testing.assert_close(found.transpose(0, 1)[None], whole)
    for cache in (attnbook.KVCache(), attnbook.RingKVCache(9), attnbook.PagedKVCache(4, 3)):
        cache.append(k, v)
        found, expected = (attnbook.attend(q, cache, **x, impl=impl) for x in (options, tensors))
        assert torch.equal(found, expected)


@pytest.mark.parametrize("make", [list, tuple, np.array, torch.tensor, lambda x: torch.tensor(x).bfloat16()])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_slopes_and_sinks_beside_arrays(dtype, make):
    """The same where q, k, v are NumPy's."""
    q, k, v = (x.numpy().astype(dtype) for x in qkv(5, 7))
    working = np.float64 if dtype == np.float64 else np.float32
    given = [make([0.5, 0.25]), make([0.5, -1.0])]
    out = attnbook.attention(q, k, v, alibi_slopes=given[0], sinks=given[1])
    expected = attnbook.reference.attention(
        q, k, v, alibi_slopes=np.array([0.5, 0.25], working), sinks=np.array([0.5, -1.0], working)
    )
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_slopes_that_the_library_gives(dtype):
    """`alibi_slopes(8)` is an array unless asked otherwise, and fits every q."""
    q, k, v = qkv(5, 7, heads=(8, 2), dtype=dtype)
    slopes = attnbook.alibi_slopes(8)
    assert isinstance(slopes, np.ndarray)
    expected = attnbook.attention(q, k, v, alibi_slopes=attnbook.alibi_slopes(8, like=q))
    assert torch.equal(attnbook.attention(q, k, v, alibi_slopes=slopes), expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scale", [-0.5, 0, 0.0, 3, np.float32(0.3), np.float64(0.3)], ids=repr)
def test_a_scale_of_any_sign_and_kind(scale, way):
    """Negative: the least alike count most. 0: the plain mean."""
    Known(*qkv(5, 7), scale=float(scale)).check(way)
    if way == "operator":  # its schema takes Python's own
        return
    q, k, v = qkv(5, 7)
    torch.testing.assert_close(run(way, q, k, v, scale=scale)[0], run(way, q, k, v, scale=float(scale))[0])


@pytest.mark.parametrize("way", [way for way in WAYS if way != "operator"])
def test_options_of_numpy_kind(way):
    """A window of np.int64, is_causal of np.bool_."""
    q, k, v = qkv(5, 7)
    out = run(way, q, k, v, is_causal=np.bool_(True), window=np.int64(3))[0]
    torch.testing.assert_close(out, run(way, q, k, v, is_causal=True, window=3)[0])


MASKS = {
    "no axis": torch.tensor(True),
    "one number": torch.tensor([True]),
    "b 1": torch.rand(1, 1, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.6,
    "a column": torch.tensor([True, True, False, True, True])[:, None],
    "of heads alone": torch.tensor([True, False])[:, None, None],
    "float64": normal(5, 7, dtype=torch.float64),
    "bfloat16": normal(5, 7, dtype=torch.bfloat16),
    "no axis, float": torch.tensor(0.5),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_any_shape_and_float(name, way):
    """From no axis to four, in another float dtype than q's."""
    if way == "numpy" and name == "bfloat16":
        return
    Known(*qkv(5, 7), mask=MASKS[name]).check(way, gradients=MASKS[name].dtype != torch.bfloat16)


# Numbers at the ends


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("times", [1e-45, 1e-38, 1e15])
def test_numbers_at_the_ends(times, way):
    """Subnormal and huge: products of 1e30 go through softmax; the largest takes all."""
    q, k, v = qkv(5, 7)
    out, lse = run(way, q * times, k * times, v, is_causal=True)
    if times > 1:
        score = (q.double() @ k.double().mT).masked_fill(torch.ones(5, 7).triu(3).bool(), -torch.inf)
        expected = v.gather(2, score.argmax(-1)[..., None].expand(2, 2, 5, 5))
        torch.testing.assert_close(out, expected)
    else:
        mean = torch.stack([v[:, :, : i + 3].mean(2) for i in range(5)], 2)
        torch.testing.assert_close(out, mean)
    assert lse is None or lse.isfinite().all()


@pytest.mark.parametrize("way", WAYS)
def test_half_precision_scores_do_not_overflow(way):
    """float16 products of 200 · 200 · 16 are beyond its 65 504, and are added up in float32."""
    q, k, v = qkv(5, 7, d=16, dtype=torch.float16)
    out = run(way, q * 200, k * 200, v)[0]
    assert out.isfinite().all()
    winner = (q.double() @ k.double().mT).argmax(-1)[..., None].expand(2, 2, 5, 16)
    torch.testing.assert_close(out, v.gather(2, winner))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [-0.0, 0.0])
def test_zeros_of_either_sign(value, way):
    """Nothing becomes NaN."""
    q, k, v = (torch.full_like(x, value) for x in qkv(5, 7))
    out, lse = run(way, q, k, v, is_causal=True)
    assert (out == 0).all()
    if lse is not None:
        torch.testing.assert_close(lse, torch.arange(3, 8).float().log().expand(2, 2, 5))
