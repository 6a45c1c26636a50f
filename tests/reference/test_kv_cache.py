"""Cache = no cache: whatever the chunks, pages and windows, attention over a cache is attention over everything.

All fresh memory of these tests is NaN (`torch.empty` is replaced): what was never written must never be read.
"""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference import attention
from attnbook.reference.kv_cache import KVCache, PagedKVCache, RingKVCache, attend
from tests.tolerance import as_float64, assert_refuses, assert_right, causal, garbage, plain, truth

B, H_Q, H_KV, D, D_V = 3, 4, 2, 5, 7
WINDOW = 5
CACHES = {
    "grows": KVCache,
    "fixed": lambda: KVCache(capacity=23),
    "ring": lambda: RingKVCache(WINDOW),
    "paged": lambda: PagedKVCache(n_pages=29, page_size=3),
}


@pytest.fixture(autouse=True, scope="module")
def fresh_memory_is_nan():
    """What is not written is NaN."""
    empty = torch.empty

    def filled(*shape, **options):
        x = empty(*shape, **options)
        return x.fill_(torch.nan) if x.is_floating_point() else x

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", filled)
        yield


def tokens(t, dtype=torch.float64, *, b=B, seed=7):
    """q, k, v of t positions, with grouped heads and values wider than keys."""
    rng = np.random.default_rng(seed)
    shapes = ((b, H_Q, t, D), (b, H_KV, t, D), (b, H_KV, t, D_V))
    return [torch.from_numpy(rng.standard_normal(shape)).to(dtype) for shape in shapes]


def pieces(chunks):
    """The slices of axis t that chunks of these lengths are."""
    ends = np.cumsum(chunks)
    return [slice(int(end - n), int(end)) for n, end in zip(chunks, ends, strict=True)]


def decode(cache, q, k, v, chunks, **options):
    """Chunk after chunk through the cache: out and lse of all positions."""
    results = []
    for part in pieces(chunks):
        cache.append(k[:, :, part], v[:, :, part])
        results.append(attend(q[:, :, part], cache, return_lse=True, **options))
    return [torch.cat(x, dim=2) for x in zip(*results, strict=True)]


def state(cache):
    """All that can be seen of a cache, to be compared before and after."""
    if not len(cache.lengths):
        return None
    extra = cache.page_table.tolist() if isinstance(cache, PagedKVCache) else None
    return cache.k.tolist(), cache.v.tolist(), cache.lengths.tolist(), cache.nbytes, extra


def window_of(name):
    return WINDOW if name == "ring" else None


CHUNKS = [[19], [1] * 19, [7, 1, 1, 1, 9], [1, 0, 11, 0, 5, 2], [4, 5, 6, 4], [0, 18, 1]]


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CACHES)
def test_right_in_every_dtype(name, dtype, chunks):
    """A prompt at once, in chunks, token by token: each row as near the truth as plain attention's; kept bitwise."""
    q, k, v = tokens(19, dtype)
    cache = CACHES[name]()
    out, lse = decode(cache, q, k, v, chunks)
    options = {"is_causal": True, "window": window_of(name)}
    exact, exact_lse = truth(q, k, v, **options)
    baseline = plain(q, k, v, **options)
    assert out.dtype == dtype
    assert_right(out, exact, baseline)
    assert_refuses(garbage(q, k, v, **options), exact, baseline)
    np.testing.assert_allclose(as_float64(lse), exact_lse, rtol=0, atol=1e-5)
    kept = cache.k.shape[2]
    assert torch.equal(cache.k, k[:, :, 19 - kept :])
    assert torch.equal(cache.v, v[:, :, 19 - kept :])
    assert cache.lengths.tolist() == [19] * B


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 11), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_any_chunking(chunks, window, page_size):
    """Every way to cut a sequence gives the same output, for any window and page size; nothing kept is changed."""
    q, k, v = tokens(sum(chunks), b=2)
    for cache, seen in (
        (KVCache(), None),
        (RingKVCache(window), window),
        (PagedKVCache(n_pages=2 * (sum(chunks) // page_size + 1), page_size=page_size), None),
    ):
        out, _ = decode(cache, q, k, v, chunks)
        full = attention(q, k, v, is_causal=True, window=seen)
        np.testing.assert_allclose(out, full, rtol=1e-12, atol=1e-13)
        kept = cache.k.shape[2]
        assert torch.equal(cache.k, k[:, :, sum(chunks) - kept :])
        assert kept == (sum(chunks) if seen is None else min(sum(chunks), window - 1 + last_of(chunks)))


def last_of(chunks):
    """The length of the last chunk that had tokens (a window is kept for it); 1 where there is none."""
    return next((n for n in reversed(chunks) if n), 1)


@pytest.mark.parametrize("name", CACHES)
def test_every_option_goes_through(name):
    """Mask, ALiBi, softcap, sinks and scale count positions as without a cache, and each changes the output."""
    q, k, v = tokens(17)
    rng = np.random.default_rng(5)
    everything = {
        "mask": torch.from_numpy(rng.standard_normal((B, 1, 17, 17))),
        "alibi_slopes": torch.from_numpy(rng.uniform(0.1, 1, (B, H_Q))),
        "softcap": 0.7,
        "sinks": torch.from_numpy(rng.standard_normal(H_Q)),
        "scale": 0.9,
        "window": 4,
    }
    for options in ({}, everything, *({name: value} for name, value in everything.items())):
        cache, outs, lses = CACHES[name](), [], []
        for part in pieces([7, 1, 1, 6, 2]):
            cache.append(k[:, :, part], v[:, :, part])
            own = dict(options)
            if "mask" in own:
                own["mask"] = own["mask"][:, :, part, : part.stop]
            out, lse = attend(q[:, :, part], cache, return_lse=True, **own)
            outs.append(out)
            lses.append(lse)
        full = {"window": window_of(name), **options}
        out, lse = attention(q, k, v, is_causal=True, return_lse=True, **full)
        np.testing.assert_allclose(torch.cat(outs, 2), out, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(torch.cat(lses, 2), lse, rtol=1e-11, atol=1e-13)
        if options:
            assert (out - attention(q, k, v, is_causal=True, window=window_of(name))).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["grows", "paged"])
def test_without_causality_every_query_sees_everything(name):
    """`is_causal=False`, as over the memory of an encoder: any number of queries."""
    q, k, v = tokens(11)
    cache = CACHES[name]()
    cache.append(k[:, :, :7], v[:, :, :7])
    out = attend(q, cache, is_causal=False)
    np.testing.assert_allclose(out, attention(q, k[:, :, :7], v[:, :, :7]), rtol=1e-12)
    assert (out[:, :, :7] - attend(q[:, :, :7], cache)).abs().max() > 0.1


def test_any_attention_of_the_interface_serves():
    """The function given is called with the cache's keys, and its result handed on."""
    calls = []

    def spy(q, k, v, **options):
        calls.append((q.shape[0], k.shape[2], options))
        return attention(q, k, v, **options)

    q, k, v = tokens(6)
    for name, expected in (
        ("grows", [(B, 6, {"is_causal": True})]),
        ("ring", [(B, 6, {"is_causal": True, "mask": None, "window": WINDOW})]),
        ("paged", [(1, 6, {"is_causal": True})] * B),
    ):
        cache = CACHES[name]()
        cache.append(k, v)
        calls.clear()
        out = attend(q, cache, attention=spy)
        assert calls == expected
        assert torch.equal(out, attend(q, cache))


def test_torch_sdpa_serves_for_one_token():
    """Torch's own attention over each cache, last token: the same as ours."""
    q, k, v = tokens(11)

    def sdpa(q, k, v, *, is_causal, window=None, mask=None):
        allowed = torch.from_numpy(causal((1, 1, q.shape[2], k.shape[2])).copy())
        if window is not None:
            allowed[..., : k.shape[2] - window] = False
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=True)

    for name in CACHES:
        cache = CACHES[name]()
        cache.append(k, v)
        last = q[:, :, -1:]
        if name == "paged":  # whose last append had 11 rows
            cache.append(k[:, :, :0], v[:, :, :0])
        np.testing.assert_allclose(attend(last, cache, attention=sdpa), attend(last, cache), rtol=1e-12)


# Memory


def test_unwritten_memory_is_nan_here():
    """The tests of this file would see what they must not read."""
    cache = KVCache(capacity=9)
    cache.append(*tokens(4)[1:])
    memory, _ = cache._memory
    assert memory[:, :, 4:].isnan().all()
    assert memory.shape[2] == 9


def test_memory_grows_by_doubling():
    """n tokens one by one move the memory log₂ n times, and at most half of it is unused."""
    _, k, v = tokens(67)
    cache, sizes = KVCache(), []
    assert cache.nbytes == 0
    for i in range(67):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        sizes.append(cache.nbytes)
    one = B * H_KV * (D + D_V) * 8
    assert sorted({size // one for size in sizes}) == [1, 2, 4, 8, 16, 32, 64, 128]
    cache.reset()
    assert (len(cache), cache.nbytes) == (0, 128 * one)


def test_fixed_memory_never_moves():
    """With a capacity the memory is that of the first append, and exactly as large."""
    _, k, v = tokens(23)
    cache = KVCache(capacity=23)
    cache.append(k[:, :, :1], v[:, :, :1])
    where = cache.k.data_ptr()
    cache.append(k[:, :, 1:], v[:, :, 1:])
    assert cache.k.data_ptr() == where
    assert cache.nbytes == 23 * B * H_KV * (D + D_V) * 8


def test_a_ring_keeps_a_window():
    """After single tokens exactly `window` positions, however long the sequence; after a chunk what it needs."""
    _, k, v = tokens(31)
    one = B * H_KV * (D + D_V) * 8
    cache = RingKVCache(WINDOW)
    cache.append(k[:, :, :11], v[:, :, :11])
    assert cache.nbytes == (WINDOW - 1 + 11) * one
    for i in range(11, 31):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        assert cache.nbytes == WINDOW * one
        assert torch.equal(cache.k, k[:, :, i + 1 - WINDOW : i + 1])
    assert len(cache) == 31


def test_what_is_stored_has_no_gradient():
    """Caches are for inference: keys that require a gradient are stored, detached."""
    q, k, v = (x.requires_grad_() for x in tokens(5))
    for make in CACHES.values():
        cache = make()
        cache.append(k, v)
        cache.append(k, v)
        assert not cache.k.requires_grad
        (gradient,) = torch.autograd.grad(attend(q, cache).sum(), q)
        assert torch.isfinite(gradient).all()


# Truncation and reuse


@pytest.mark.parametrize("name", CACHES)
def test_a_refused_guess_leaves_no_trace(name):
    """Append a guess of four, keep one or none of it, go on: as if the rest had never been there."""
    q, k, v = tokens(17)
    guess_k, guess_v = k.flip(2) * 3, v.flip(2) * 3
    for kept in (0, 1, 3):
        cache = CACHES[name]()
        cache.append(k[:, :, :9], v[:, :, :9])
        cache.append(k[:, :, 9:10], v[:, :, 9:10])
        part = torch.cat([k[:, :, 10 : 10 + kept], guess_k[:, :, : 4 - kept]], 2)
        cache.append(part, torch.cat([v[:, :, 10 : 10 + kept], guess_v[:, :, : 4 - kept]], 2))
        length = 10 + kept
        cache.truncate([length] * B if name == "paged" else length)
        assert cache.lengths.tolist() == [length] * B
        rest = slice(length, 17)
        cache.append(k[:, :, rest], v[:, :, rest])
        full = attention(q, k, v, is_causal=True, window=window_of(name))[:, :, rest]
        np.testing.assert_allclose(attend(q[:, :, rest], cache), full, rtol=1e-12, atol=1e-13)


def test_a_ring_cannot_go_back_to_what_it_has_overwritten():
    """Back to the last append always, not beyond; before anything is overwritten, anywhere."""
    _, k, v = tokens(17)
    cache = RingKVCache(WINDOW)
    cache.append(k[:, :, :3], v[:, :, :3])
    cache.truncate(1)
    cache.append(k[:, :, 1:14], v[:, :, 1:14])
    cache.append(k[:, :, 14:], v[:, :, 14:])
    with pytest.raises(
        ValueError, match=r"^length is 13: expected a whole number, 14 to 17, what is kept of the present length$"
    ):
        cache.truncate(13)
    cache.truncate(14)
    cache.append(k[:, :, 14:15], v[:, :, 14:15])
    assert torch.equal(cache.k, k[:, :, 10:15])


@pytest.mark.parametrize("name", CACHES)
def test_reset_makes_room_for_another_batch(name):
    """After `reset` a cache is as new, in the memory that it had."""
    q, k, v = tokens(13)
    cache = CACHES[name]()
    cache.append(k * 2, v * 2)
    cache.reset()
    assert cache.lengths.tolist() == [0] * B
    out, _ = decode(cache, q, k, v, [6, 1, 6])
    full = attention(q, k, v, is_causal=True, window=window_of(name))
    np.testing.assert_allclose(out, full, rtol=1e-12, atol=1e-13)


def test_what_a_cache_shows_of_itself():
    """Its kind, lengths, sizes, room and dtype; before the first append what it was made with."""
    kept, room, ring, paged = KVCache(), KVCache(13), RingKVCache(3), PagedKVCache(page_size=4)
    assert repr(kept) == "KVCache(capacity=None, empty)"
    assert repr(room) == "KVCache(capacity=13, empty)"
    assert repr(ring) == "RingKVCache(window=3, empty)"
    assert repr(paged) == "PagedKVCache(n_pages=None, page_size=4, empty)"
    assert repr(PagedKVCache(7, 2)) == "PagedKVCache(n_pages=7, page_size=2, empty)"
    for cache in (kept, room, ring, paged):
        cache.append(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 5, 11))
    assert repr(kept) == "KVCache(k=(2, 3, 5, 7), v=(2, 3, 5, 11), room=5, dtype=torch.float32)"
    assert repr(room) == "KVCache(k=(2, 3, 5, 7), v=(2, 3, 5, 11), room=13, dtype=torch.float32)"
    assert repr(ring) == (
        "RingKVCache(window=3, length=5, b=2, n_kv_heads=3, d=7, d_v=11, room=7, dtype=torch.float32)"
    )
    paged.free(0)
    assert repr(paged) == (
        "PagedKVCache(lengths=[0, 5], 2 of 4 pages of 4, n_kv_heads=3, d=7, d_v=11, dtype=torch.float32)"
    )
    many = PagedKVCache()
    many.append(torch.zeros(9, 1, 1, 2), torch.zeros(9, 1, 1, 2))
    assert repr(many).startswith("PagedKVCache(lengths=[1, 1, 1, 1, 1, 1, 1, 1, …], 9 of ")


@pytest.mark.parametrize("name", CACHES)
def test_empty_caches_and_batches(name):
    """No lengths and no memory before the first append; a batch of 0 and chunks of 0 are legal."""
    cache = CACHES[name]()
    assert (cache.lengths.tolist(), cache.nbytes) == ([], 0)
    for ask in (lambda: cache.k, lambda: cache.v, lambda: attend(tokens(1)[0], cache)):
        with pytest.raises(ValueError, match=r"^the cache is empty: append keys and values first$"):
            ask()
    q, k, v = tokens(3, b=0)
    cache.append(k, v)
    assert attend(q, cache).shape == (0, H_Q, 3, D_V)
    cache = CACHES[name]()
    q, k, v = tokens(0)
    cache.append(k, v)
    assert attend(q, cache).shape == (B, H_Q, 0, D_V)


# Errors: each is one sentence, and the cache is what it was

_, K, V = tokens(4)
APPENDS = [
    (K[0], V, ShapeError, "k has 3 axes (2, 4, 5): expected 4, (b, h, t, d): batch, heads, positions, components"),
    (K, V[:, :, :3], ShapeError, "v has length 3 (axis t) but k has 4: they must be equal"),
    (K, V[:, :1], ShapeError, "v has length 1 (axis h) but k has 2: they must be equal"),
    (K[:2], V[:2], ShapeError, "k has batch 2 (axis b) but the cache has 3: they must be equal"),
    (K[:, :1], V[:, :1], ShapeError, "k has 1 heads (axis h) but the cache's k has 2: they must be equal"),
    (K[..., :4], V, ShapeError, "k has 4 components (axis d) but the cache's k has 5: they must be equal"),
    (K, V[..., :4], ShapeError, "v has 4 components (axis d) but the cache's v has 7: they must be equal"),
    (K.float(), V.float(), DTypeError,
     "k has dtype torch.float32 but the cache's k has torch.float64: they must be equal"),
    (K, V.float(), DTypeError, "v has dtype torch.float32 but k has torch.float64: they must be equal"),
    (K.long(), V.long(), DTypeError, "k has dtype torch.int64: expected a floating-point dtype"),
    (K.to("meta"), V.to("meta"), ValueError, "k is on device meta but the cache's k on cpu: they must be equal"),
    (K.numpy(), V, TypeError, "k is a ndarray: expected a torch tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("k", "v", "error", "text"), APPENDS, ids=[text[:35] for *_, text in APPENDS])
@pytest.mark.parametrize("name", CACHES)
def test_what_does_not_fit_is_refused_whole(name, k, v, error, text):
    """Wrong axes, heads, dtypes or devices: one error, and nothing is stored."""
    cache = CACHES[name]()
    cache.append(*tokens(7)[1:])
    before = state(cache)
    with pytest.raises(error, match="^" + re.escape(text) + "$"):
        cache.append(k, v)
    assert state(cache) == before


def test_overflow_leaves_the_cache_as_it_was():
    """A capacity that the new tokens exceed is an error that says how many fit; that many still fit."""
    cache = KVCache(capacity=9)
    cache.append(*tokens(7)[1:])
    before = state(cache)
    with pytest.raises(ShapeError, match=r"^k has length 3 \(axis t\) but the cache holds 7 of at most 9 positions: "
                       r"expected at most 2$"):  # fmt: skip
        cache.append(K[:, :, :3], V[:, :, :3])
    assert state(cache) == before
    cache.append(K[:, :, :2], V[:, :, :2])
    assert len(cache) == 9


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: KVCache(capacity=0), "capacity is 0: expected a whole number, at least 1"),
        (lambda: KVCache(capacity=True), "capacity is True: expected a whole number, at least 1"),
        (lambda: RingKVCache(0), "window is 0: expected a whole number, at least 1"),
        (lambda: RingKVCache(2.0), "window is 2.0: expected a whole number, at least 1"),
        (lambda: PagedKVCache(0, 4), "n_pages is 0: expected a whole number, at least 1"),
        (lambda: PagedKVCache(4, 0), "page_size is 0: expected a whole number, at least 1"),
    ],
)
def test_sizes_are_whole_numbers(call, text):
    """Capacity, window, pages and page size are checked where they are given."""
    with pytest.raises(ValueError, match="^" + re.escape(text) + "$"):
        call()


def filled(name, t=7):
    cache = CACHES[name]()
    cache.append(*tokens(t)[1:])
    return cache


ATTENDS = [
    ("grows", 9, {},
     "q has length 9 (axis t) but the cache has 7 tokens: causal queries are those of the newest tokens"),
    ("paged", 9, {},
     "q has length 9 (axis t) but sequence 0 of the cache has 7 tokens: causal queries are those of the newest tokens"),
    ("ring", 9, {},
     "q has length 9 (axis t) but the cache still has the window of 7 tokens: "
     "causal queries are those of the newest tokens"),
    ("ring", 2, {"is_causal": False}, "is_causal is False but the cache keeps a window of 5: expected is_causal=True"),
    ("ring", 2, {"window": 6}, "window is 6 but the cache keeps 5: expected at most that"),
    ("ring", 2, {"mask": torch.zeros(2, 5)}, "mask has length 5 along axis t_kv but the scores have 7: must be 7 or 1"),
    ("paged", 2, {"mask": torch.zeros(3, 7)}, "mask has length 3 along axis t_q but the scores have 2: must be 2 or 1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "t_q", "options", "text"), ATTENDS, ids=[text[:35] for *_, text in ATTENDS])
def test_questions_that_a_cache_cannot_answer(name, t_q, options, text):
    """More queries than tokens, a window that is no longer there, masks of other sizes."""
    with pytest.raises(ValueError, match="^" + re.escape(text) + "$"):
        attend(tokens(t_q)[0], filled(name), **options)


def test_something_that_is_no_cache():
    """It is named by its type."""
    with pytest.raises(TypeError, match="cache is a tuple: expected a KVCache, RingKVCache or PagedKVCache"):
        attend(torch.ones(1, 2, 3, 4), (torch.ones(1, 2, 3, 4),) * 2)


def test_queries_whose_window_is_gone():
    """After single tokens a ring answers for the last one only, or for more with a smaller window."""
    q, k, v = tokens(11)
    cache = RingKVCache(WINDOW)
    for i in range(11):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
    with pytest.raises(ShapeError, match=r"^q has length 2 \(axis t\) but the cache still has the window of 1 tokens"):
        attend(q[:, :, -2:], cache)
    full = attention(q, k, v, is_causal=True, window=3)[:, :, -3:]
    np.testing.assert_allclose(attend(q[:, :, -3:], cache, window=3), full, rtol=1e-12)


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("length", [-1, 8, 1.5])
def test_truncating_to_what_is_not_there(name, length):
    """A length below 0, above the present one or broken is refused."""
    cache = filled(name)
    before = state(cache)
    if name == "paged":
        if length == 1.5:
            return  # lengths come as integers of a tensor
        with pytest.raises(ValueError, match=rf"^lengths\[1\] is {length}: expected a whole number, 0 to 7"):
            cache.truncate([7, length, 7])
    else:
        with pytest.raises(ValueError, match=rf"^length is {length}: expected a whole number, 0 to 7"):
            cache.truncate(length)
    assert state(cache) == before
