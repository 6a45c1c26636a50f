"""`attend(q, cache, impl="triton")`: the newest tokens against a cache, contiguous, a ring, or in pages."""

import re

import pytest
import torch

from attnbook.api import KVCache, PagedKVCache, RingKVCache, attend
from attnbook.errors import BackendUnavailable, ShapeError
from tests.api.samples import H_KV, SINKS, SLOPES, D, inputs
from tests.kernels.device import DEVICE
from tests.kernels.doors import moved, watch
from tests.tolerance import as_float64, assert_right

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LENGTHS = [5, 17, 1, 8]
PAGE = 4


def keys(dtype=torch.float32, b=4, t_q=1, **sizes):
    """q of the newest tokens, and k and v of all."""
    return [x.to(DEVICE) for x in inputs(dtype, b=b, t_q=t_q, **sizes)]


def in_pages(k, v, lengths=LENGTHS):
    """The first of k and v in pages that lie in no order; what holds no token is NaN."""
    b, _, t, _ = k.shape
    each = -(-t // PAGE)
    order = torch.randperm(b * each + 3, generator=torch.Generator().manual_seed(2)).tolist()
    pages = [x.new_full((len(order), x.shape[1], PAGE, x.shape[3]), torch.nan) for x in (k, v)]
    table = [[order.pop() for _ in range(-(-n // PAGE))] for n in lengths]
    for i, n in enumerate(lengths):
        for at in range(n):
            for of, x in zip(pages, (k, v), strict=True):
                of[table[i][at // PAGE], :, at % PAGE] = x[i, :, at]
    rows = [row + [-1] * (each - len(row)) for row in table]
    return PagedKVCache.from_pages(*pages, rows, lengths)


@pytest.fixture
def went(monkeypatch):
    """Which kernels were reached."""
    names = []
    for module, name in (("decode", "decode_forward"), ("decode", "paged_forward"), ("flash", "attention_forward")):
        watch(monkeypatch, f"attnbook.kernels.{module}", name, names)
    return names


OPTIONS = {
    "none": {},
    "window": {"window": 3},
    "softcap and scale": {"softcap": 2.5, "scale": 0.9},
    "slopes and sinks": {"alibi_slopes": SLOPES, "sinks": SINKS},
    "slopes of each sequence": {
        "alibi_slopes": torch.rand(len(LENGTHS), 6, generator=torch.Generator().manual_seed(8))
    },
    "a mask": {"mask": torch.rand(1, 17, generator=torch.Generator().manual_seed(9)) < 0.7},
}


@pytest.mark.parametrize(("name", "dtype"), [(name, DTYPES[i % 3]) for i, name in enumerate(OPTIONS)])
def test_pages(name, dtype, went):
    """Each sequence has its own length, more or less than a page; the result is the reference's."""
    q, k, v = keys(dtype)
    cache, options = in_pages(k, v), moved(OPTIONS[name])
    out, lse = attend(q, cache, impl="triton", return_lse=True, **options)
    assert went == ["paged_forward"]
    assert (out.dtype, lse.dtype) == (dtype, torch.float32)
    assert torch.equal(out, attend(q, cache, impl="triton", **options))
    exact, of_lse = attend(q.double(), in_pages(k.double(), v.double()), impl="reference", return_lse=True, **options)
    assert_right(out.cpu(), as_float64(exact.cpu()), attend(q, cache, impl="reference", **options).cpu())
    torch.testing.assert_close(lse, of_lse.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True])
def test_several_new_tokens(is_causal, went):
    """A chunk sees the older keys and, causal, of its own only those before."""
    lengths = [5, 17, 3, 8]
    q, k, v = keys(t_q=3)
    cache = in_pages(k, v, lengths)
    out = attend(q, cache, is_causal=is_causal, impl="triton")
    assert went == ["paged_forward"]
    torch.testing.assert_close(out, attend(q, cache, is_causal=is_causal, impl="reference"))


def test_an_empty_sequence():
    """It has nothing to see: output 0, lse −inf, or the sink."""
    q, k, v = keys()
    cache = in_pages(k, v, [5, 0, 17, 0])
    out, lse = attend(q, cache, is_causal=False, return_lse=True, impl="triton")
    assert (out[1::2] == 0).all()
    assert (lse[1::2] == -torch.inf).all()
    lse = attend(q, cache, is_causal=False, sinks=SINKS.to(DEVICE), return_lse=True, impl="triton")[1]
    torch.testing.assert_close(lse[1, :, 0], SINKS.to(DEVICE))


def test_a_ragged_append():
    """Where the last append brought fewer rows to some, their rows beyond are 0, with lse −inf."""
    q, k, v = keys(t_q=3)
    caches = {}
    for impl in ("triton", "reference"):
        cache = caches[impl] = PagedKVCache(page_size=PAGE)
        cache.append(k, v, [5, 17, 2, 8])
        cache.append(k[:, :, :3], v[:, :, :3], [3, 1, 2, 0])
    out, lse = attend(q, caches["triton"], return_lse=True, impl="triton")
    expected, of_lse = attend(q, caches["reference"], return_lse=True, impl="reference")
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(lse, of_lse, rtol=1e-5, atol=1e-5)
    assert (out[1, :, 1:] == 0).all()
    assert (lse[3] == -torch.inf).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_alone_and_in_a_batch(dtype):
    """A request does not depend on its neighbours, in pages nor in a plain cache with many keys."""
    q, k, v = keys(dtype)
    whole = attend(q, in_pages(k, v), impl="triton")
    for i, n in enumerate(LENGTHS):
        alone = attend(q[i : i + 1], in_pages(k[i : i + 1], v[i : i + 1], [n]), impl="triton")
        assert torch.equal(alone[0], whole[i])
    q, k, v = keys(dtype, t_kv=281, b=2)
    cache, one = KVCache(), KVCache()
    cache.append(k, v)
    one.append(k[1:2], v[1:2])
    assert torch.equal(attend(q, cache, impl="triton")[1], attend(q[1:2], one, impl="triton")[0])


def test_many_new_tokens_and_gradients_gather_the_keys(went):
    """A long chunk, or a backward pass, is not for the kernels that read pages: sequence by sequence, and right."""
    q, k, v = keys(t_q=17, b=2)
    cache = in_pages(k, v, [17] * 2)
    torch.testing.assert_close(attend(q, cache, impl="triton"), attend(q, cache, impl="reference"))
    assert went == ["attention_forward"] * 2
    went.clear()
    grads = []
    for impl in ("triton", "reference"):
        one = q[:, :, :1].clone().requires_grad_()
        attend(one, cache, impl=impl).square().sum().backward()
        grads.append(one.grad)
    assert went == ["attention_forward"] * 2
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("t_q", [1, 5])
def test_a_plain_cache(t_q, went):
    """The kernels read the view that the cache gives, which is a part of a larger memory."""
    q, k, v = keys(t_q=t_q, t_kv=281, b=2)
    cache = KVCache()
    cache.append(k[:, :, :257], v[:, :, :257])
    cache.append(k[:, :, 257:], v[:, :, 257:])
    assert not cache.k.is_contiguous()
    out = attend(q, cache, impl="triton")
    assert went == ["decode_forward"]
    torch.testing.assert_close(out, attend(q, cache, impl="reference"))


def test_a_ring():
    """Its last keys, in order of position, with its window."""
    q, k, v = keys(t_q=3)
    cache = RingKVCache(window=7)
    cache.append(k[:, :, :14], v[:, :, :14])
    cache.append(k[:, :, 14:], v[:, :, 14:])
    torch.testing.assert_close(attend(q, cache, impl="triton"), attend(q, cache, impl="reference"))


def test_autocast():
    """q becomes autocast's dtype; pages of that dtype are read where they lie, others are gathered and cast."""
    q, k, v = keys(torch.bfloat16)
    cache = in_pages(k, v)
    expected = attend(q, cache, impl="triton")
    with torch.autocast(DEVICE, torch.bfloat16):
        out = attend(q.float(), cache, impl="triton")
        torch.testing.assert_close(attend(q.float(), in_pages(k.float(), v.float()), impl="triton"), expected)
    assert torch.equal(out, expected)


# What it refuses


def test_a_table_that_is_wrong():
    """A page that is not there, a page of another sequence, a length beyond the pages: no cache, no call."""
    cache = in_pages(*keys()[1:])
    pages, table, lengths = cache.pages, cache.page_table.cpu(), cache.lengths.tolist()
    n = len(pages[0])
    for change, text in (
        ({(1, 2): n}, f"page_table[1, 2] is {n}: expected 0 to {n - 1}, for {n} pages"),
        ({(1, 2): -1}, f"page_table[1, 2] is -1: expected 0 to {n - 1}, for {n} pages"),
        ({(3, 0): int(table[0, 1])}, f"page_table[3, 0] is {int(table[0, 1])}, as is page_table[0, 1]: a page has one"),
    ):
        wrong = table.clone()
        for at, page in change.items():
            wrong[at] = page
        with pytest.raises(ShapeError, match=re.escape(text)):
            PagedKVCache.from_pages(*pages, wrong, lengths)
    with pytest.raises(ShapeError, match=r"lengths\[1\] is 21: expected 0 to 20, 5 pages of 4"):
        PagedKVCache.from_pages(*pages, table, [5, 21, 1, 8])


def test_the_checks_of_every_cache():
    """Rows without keys, other heads, other sequences, an empty cache: the same errors as without kernels."""
    q, k, v = keys()
    cache = in_pages(k, v)
    for wrong, text in (
        (q.expand(-1, -1, 3, -1), "q has length 3 (axis t) but sequence 2 of the cache has 1 tokens"),
        (q[:, :5], f"k has {H_KV} heads (axis h) but q has 5: n_heads must be a multiple of n_kv_heads"),
        (q[:3], "k has batch 4 (axis b) but q has 3: they must be equal"),
        (q[..., :-1], f"k has head_dim {D} (axis d) but q has {D - 1}: they must be equal"),
        (q[0], "q has 3 axes"),
    ):
        with pytest.raises(ShapeError, match=re.escape(text)):
            attend(wrong, cache, impl="triton")
    with pytest.raises(ValueError, match="the cache is empty: append keys and values first"):
        attend(q, PagedKVCache(), impl="triton")
    with pytest.raises(ValueError, match="window is 0"):
        attend(q, cache, window=0, impl="triton")
    with pytest.raises(TypeError, match="unexpected keyword argument 'windows'"):
        attend(q, cache, windows=3, impl="triton")


def test_what_no_kernel_takes():
    """float64, and rows that are too long: an error, not another way."""
    q, k, v = keys(torch.float64)
    with pytest.raises(BackendUnavailable, match="the dtype is float64"):
        attend(q, in_pages(k, v), impl="triton")
    wide = [torch.nn.functional.pad(x, (0, 257 - x.shape[-1])) for x in keys()]
    with pytest.raises(BackendUnavailable, match=r"q has head_dim 257 \(axis d\), and the kernels take 1 to 256"):
        attend(wide[0], in_pages(*wide[1:]), impl="triton")
