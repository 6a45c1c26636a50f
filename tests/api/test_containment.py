"""What is not finite stays where it may be seen, forward and backward, whichever implementation runs."""

import math

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnbook import attention, explain
from tests.api.samples import IMPLS
from tests.exact import visible

OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 5},
    "boolean mask": {"mask": np.random.default_rng(3).random((2, 4, 19, 23)) < 0.5},
    "float mask": {"mask": np.where(np.random.default_rng(3).random((19, 23)) < 0.5, 0.3, -np.inf)},
    "padding and causal": {"mask": np.arange(23) < 14, "is_causal": True},
    "slopes": {"is_causal": True, "alibi_slopes": np.full(4, 0.3)},
}
SIZES = {"long": (19, 23), "square": (19, 19), "few keys": (5, 7), "one query": (1, 23)}


def call(impl, q, k, v, options):
    """Attention of NumPy arrays as float64 tensors; and the tensors."""
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    options = {key: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for key, x in options.items()}
    return attention(*leaves, impl=impl, **options), leaves


def sample(name, size):
    """q, k, v, options and which query sees which key, (2, 4, t_q, t_kv)."""
    t_q, t_kv = SIZES[size]
    normal = np.random.default_rng(7).standard_normal
    q, k, v = normal((2, 4, t_q, 3)), normal((2, 2, t_kv, 3)), normal((2, 2, t_kv, 3))
    options = dict(OPTIONS[name])
    allowed = None
    if "mask" in options:
        mask = options["mask"] = (
            options["mask"][..., :t_kv] if options["mask"].ndim == 1 else options["mask"][..., :t_q, :t_kv]
        )
        allowed = mask if mask.dtype == bool else np.isfinite(mask)
    seen = visible((2, 4, t_q, t_kv), allowed=allowed, is_causal=options.get("is_causal", False),
                   window=options.get("window"))  # fmt: skip
    return q, k, v, options, seen


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("place", ["k", "v"])
@pytest.mark.parametrize("impl", IMPLS)
def test_a_key_reaches_only_those_who_may_see_it(impl, place, name, size, bad):
    """All other rows of the output, and all gradients that share no row with it, are what they were."""
    q, k, v, options, seen = sample(name, size)
    at = (1, 1, 3)  # key 3 of the second sequence, for heads 2 and 3
    rows = np.zeros(q.shape[:3], bool)
    rows[1, 2:] = seen[1, 2:, :, 3]
    spoilt = {"k": k.copy(), "v": v.copy()}
    clean = {"k": k.copy(), "v": v.copy()}
    spoilt[place][at], clean[place][at] = bad, 0.0
    before, clean_leaves = call(impl, q, clean["k"], clean["v"], options)
    after, leaves = call(impl, q, spoilt["k"], spoilt["v"], options)
    np.testing.assert_allclose(after.detach().numpy()[~rows], before.detach().numpy()[~rows], rtol=1e-9, atol=1e-12)
    if np.isnan(bad):
        assert np.isnan(after.detach().numpy()[rows]).all()

    columns = (seen & rows[..., None]).any(2).reshape(2, 2, 2, -1).any(2)
    expected = torch.autograd.grad(before.sum(), clean_leaves)
    grads = torch.autograd.grad(after.sum(), leaves)
    for x, y, reached in zip(grads, expected, (rows, columns, columns), strict=True):
        np.testing.assert_allclose(x.numpy()[~reached], y.numpy()[~reached], rtol=1e-9, atol=1e-12)
    if np.isnan(bad):
        assert not np.isfinite(grads[0].numpy()[rows]).any()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("impl", IMPLS)
def test_a_query_reaches_its_own_row_alone(impl, name, size):
    """And is not lost: below 16 keys torch's own attention gives 0 for a row of NaN."""
    q, k, v, options, seen = sample(name, size)
    i = q.shape[2] // 2
    before, clean_leaves = call(impl, q, k, v, options)
    expected = torch.autograd.grad(before.sum(), clean_leaves)
    q[0, 1, i] = np.nan
    after, leaves = call(impl, q, k, v, options)
    assert after[0, 1, i].isnan().all()
    same = torch.ones(q.shape[:3], dtype=torch.bool)
    same[0, 1, i] = False
    torch.testing.assert_close(after[same], before[same])
    grads = torch.autograd.grad(after.sum(), leaves)
    torch.testing.assert_close(grads[0][same], expected[0][same])
    hidden = torch.ones(2, 2, k.shape[2], dtype=torch.bool)
    hidden[0, 0] = torch.from_numpy(~seen[0, 1, i])
    for x, y in zip(grads[1:], expected[1:], strict=True):
        torch.testing.assert_close(x[hidden], y[hidden])


@pytest.mark.parametrize("impl", IMPLS)
def test_a_value_of_infinity_that_is_seen_is_an_infinity(impl):
    """In its component; two of opposite signs are NaN."""
    q, k, v, options, _ = sample("causal", "square")
    v[:, :, 2, 1], v[:, :, 4, 1] = np.inf, -np.inf
    out = call(impl, q, k, v, options)[0].detach()
    assert (out[:, :, 2:4, 1] == torch.inf).all()
    assert out[:, :, 4:, 1].isnan().all()
    assert out[:, :, :2].isfinite().all()
    assert out[..., [0, 2]].isfinite().all()


@pytest.mark.parametrize("impl", IMPLS)
def test_padding_that_is_never_seen(impl):
    """A cache that holds garbage beyond its length: everything is finite, its own gradients are 0."""
    q, k, v, _, _ = sample("plain", "long")
    k[:, :, 14:], v[:, :, 14:] = np.nan, np.inf
    out, leaves = call(impl, q, k, v, {"mask": np.arange(23) < 14})
    grads = torch.autograd.grad(out.sum(), leaves)
    assert all(x.isfinite().all() for x in (out, *grads))
    assert all((x[:, :, 14:] == 0).all() for x in grads[1:])


@pytest.mark.parametrize("impl", ["reference", "tiled", "sdpa", "auto"])
def test_a_mask_that_is_no_number(impl):
    """A NaN or +inf in a floating mask spoils the row of that query, no other, and no gradient of a key it hides."""
    q, k, v, _, _ = sample("plain", "long")
    rest = [i for i in range(19) if i != 5]
    for bad in (np.nan, np.inf):
        mask = np.zeros((19, 23))
        mask[5, 9] = -np.inf
        before, clean_leaves = call(impl, q, k, v, {"mask": mask})
        mask[5, 7] = bad
        after, leaves = call(impl, q, k, v, {"mask": mask})
        assert after[:, :, 5].isnan().all()
        torch.testing.assert_close(after[:, :, rest], before[:, :, rest])
        expected = torch.autograd.grad(before.sum(), clean_leaves)
        for x, y in zip(torch.autograd.grad(after.sum(), leaves)[1:], expected[1:], strict=True):
            torch.testing.assert_close(x[:, :, 9], y[:, :, 9])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_gradients_of_a_short_call(place, bad):
    """A causal call with as many key heads as query heads, in q and k: what is not finite reaches no hidden key."""
    g = torch.Generator().manual_seed(2)
    tensors = [torch.randn(1, 2, 67, 8, generator=g) for _ in "qkv"]
    tensors[1 - place][..., 0].abs_()  # then a score of −inf is one whose weight is 0: the output stays finite
    found = []
    for value in (0.0, bad):
        leaves = [x.clone() for x in tensors]
        leaves[place][:, :, 41, 0] = value
        leaves = [x.requires_grad_() for x in leaves]
        out = attention(*leaves, is_causal=True)
        found.append(torch.autograd.grad(out.sum(), leaves))
    for n, (x, y) in enumerate(zip(*found, strict=True)):
        # Row 41 of q sees keys 0 to 41; key 41 is seen by rows 41 and later, which see all keys.
        keep = {0: slice(42, None) if n else [i for i in range(67) if i != 41], 1: slice(0, 0) if n else slice(0, 41)}
        torch.testing.assert_close(y[:, :, keep[place]], x[:, :, keep[place]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_whatever_kernel_torch_takes(dtype, backend, place):
    """Also where a caller chose one for torch: the short way sees the NaN in the result."""
    g = torch.Generator().manual_seed(2)
    tensors = [torch.randn(1, 2, 67, 8, generator=g).to(dtype) for _ in "qkv"]
    with sdpa_kernel(backend):
        before = attention(*tensors, is_causal=True)
        tensors[place][:, :, 41] = torch.nan
        after = attention(*tensors, is_causal=True)
    spoilt = slice(41, 42) if place == 0 else slice(41, None)
    assert after[:, :, spoilt].isnan().all()
    keep = [i for i in range(67) if not (i == 41 or (place and i > 41))]
    rounding = 8 * torch.finfo(dtype).eps  # of outputs of about one, by torch's kernel and by tiles
    torch.testing.assert_close(after[:, :, keep], before[:, :, keep], rtol=0, atol=rounding)


def test_sums_that_overflow_are_no_infinities():
    """Finite numbers whose sum is not: looked at one by one, and torch's own attention runs."""
    small, large = torch.zeros(1, 2, 67, 8), torch.full((1, 2, 67, 8), 3e36)
    assert not large.sum().isfinite()
    assert explain(small, small, large, is_causal=True).impl == "sdpa"
    assert attention(small, small, large, is_causal=True).isfinite().all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_short_way_keeps_it_too_with_grouped_heads(dtype, where, value):
    """Enough queries for torch's kernel, heads that share keys: only rows that may see it are touched."""
    make = torch.Generator().manual_seed(7)
    given = {name: torch.randn(1, h, 71, 16, generator=make).to(dtype) for name, h in (("q", 6), ("k", 2), ("v", 2))}
    clean = attention(*given.values(), is_causal=True)
    given[where][0, 1, 67] = value
    out = attention(*given.values(), is_causal=True)
    touched = [1] if where == "q" else [3, 4, 5]
    rows = torch.zeros(6, 71, dtype=torch.bool)
    rows[touched, 67 : 68 if where == "q" else 71] = True
    few_roundings = 4 * torch.finfo(dtype).eps  # another implementation may have run
    torch.testing.assert_close(out[0][~rows], clean[0][~rows], rtol=few_roundings, atol=few_roundings)
    assert not torch.equal(out[0][rows], clean[0][rows])
