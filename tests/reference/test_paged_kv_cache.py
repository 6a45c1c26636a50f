"""Pages: sequences of different lengths, pages anywhere, reused; each sequence as if it were alone."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook.errors import ShapeError
from attnbook.reference import attention
from attnbook.reference.kv_cache import KVCache, PagedKVCache, attend
from tests.reference.test_kv_cache import D_V, H_KV, H_Q, B, D, fresh_memory_is_nan, state, tokens

__all__ = ["fresh_memory_is_nan"]  # the fixture: it holds in this file too


def alone(q, k, v):
    """Causal attention of one sequence over itself."""
    return attention(q, k, v, is_causal=True)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_history(data):
    """Appends of any lengths, truncations and frees in any order: each sequence is what a list of its tokens says."""
    page_size, rng = data.draw(st.integers(1, 4)), np.random.default_rng(data.draw(st.integers(0, 99)))
    cache = PagedKVCache(n_pages=data.draw(st.sampled_from([40, None])), page_size=page_size)
    lists = [[torch.zeros(H_KV, 0, n, dtype=torch.float64) for n in (D, D_V)] for _ in range(B)]
    for _ in range(data.draw(st.integers(1, 7))):
        new = data.draw(st.lists(st.integers(0, 4), min_size=B, max_size=B))
        kv = [torch.from_numpy(rng.standard_normal((B, H_KV, 4, n))) for n in (D, D_V)]
        cache.append(*kv, new_lengths=new)
        lists = [
            [torch.cat([old, x[b, :, : new[b]]], 1) for old, x in zip(lists[b], kv, strict=True)] for b in range(B)
        ]
        act = data.draw(st.sampled_from(["nothing", "free", "truncate"]))
        if act == "free":
            b = data.draw(st.integers(0, B - 1))
            cache.free(b)
            lists[b] = [x[:, :0] for x in lists[b]]
        elif act == "truncate":
            lengths = [data.draw(st.integers(0, x[0].shape[1])) for x in lists]
            cache.truncate(torch.tensor(lengths))
            lists = [[x[:, :n] for x in pair] for pair, n in zip(lists, lengths, strict=True)]
        assert cache.lengths.tolist() == [pair[0].shape[1] for pair in lists]
        used = sum(-(-pair[0].shape[1] // page_size) for pair in lists)
        assert cache.n_free_pages == cache.n_pages - used
        for b, pair in enumerate(lists):
            for got, expected in zip(cache.sequence(b), pair, strict=True):
                assert torch.equal(got[0], expected)
    assert torch.equal(cache.k, padded(lists))


def test_memory_without_a_size_grows():
    """Pages double when none is free, keep their numbers, and move some log₂ n times; a first chunk may be empty."""
    cache, (_, k, v) = PagedKVCache(page_size=3), tokens(50, torch.float64)
    assert (cache.n_pages, cache.nbytes) == (0, 0)
    cache.append(k[:, :, :0], v[:, :, :0])
    sizes = {cache.n_pages}
    for i in range(50):
        table = cache.page_table
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        assert torch.equal(cache.page_table[:, : table.shape[1]], table)
        sizes.add(cache.n_pages)
    assert torch.equal(cache.k, k)
    assert torch.equal(cache.v, v)
    assert B * 17 <= max(sizes) < 2 * B * 17
    assert len(sizes) <= 8


def padded(lists):
    longest = max(pair[0].shape[1] for pair in lists)
    return torch.stack([torch.nn.functional.pad(pair[0], (0, 0, 0, longest - pair[0].shape[1])) for pair in lists])


@given(st.permutations(range(11)))
@settings(max_examples=15, deadline=None)
def test_pages_may_lie_anywhere(order):
    """The same tokens in permuted pages of one memory: the same state and output, bitwise, as contiguous."""
    q, k, v = tokens(10)
    lengths = [10, 7, 2]
    memory = [torch.full((11, H_KV, 3, n), torch.nan, dtype=torch.float64) for n in (D, D_V)]
    table, free = [], list(order)
    for b, length in enumerate(lengths):
        row = [free.pop() for _ in range(-(-length // 3))]
        for i, page in enumerate(row):
            for pages, x in zip(memory, (k, v), strict=True):
                part = x[b, :, 3 * i : min(3 * i + 3, length)]
                pages[page, :, : part.shape[1]] = part
        table.append(row + [-1] * (4 - len(row)))
    cache = PagedKVCache.from_pages(*memory, torch.tensor(table), torch.tensor(lengths))
    assert cache.page_table.tolist() == table
    out = attend(q[:, :, 8:], cache)
    for b, length in enumerate(lengths):
        contiguous = KVCache()
        contiguous.append(k[b : b + 1, :, :length], v[b : b + 1, :, :length])
        assert torch.equal(cache.sequence(b)[0], contiguous.k)
        assert torch.equal(out[b : b + 1], attend(q[b : b + 1, :, 8:], contiguous))
    cache.append(k[:, :, :3], v[:, :, :3])  # goes on in free pages only, the last three
    assert cache.n_free_pages == 0
    for b, length in enumerate(lengths):
        assert torch.equal(cache.sequence(b)[1], torch.cat([v[b : b + 1, :, :length], v[b : b + 1, :, :3]], 2))


def test_ragged_prompts_then_single_tokens():
    """Prompts of different lengths, filling of NaN, then decoding: each row as if alone; filling gives 0."""
    q, k, v = tokens(13)
    lengths = [5, 0, 9]
    prompt = [x[:, :, :9].clone() for x in (k, v)]
    for b, n in enumerate(lengths):
        for x in prompt:
            x[b, :, n:] = torch.nan
    cache = PagedKVCache(n_pages=17, page_size=4)
    cache.append(*prompt, new_lengths=lengths)
    out, lse = attend(q[:, :, :9], cache, return_lse=True)
    assert torch.isfinite(out).all()
    for b, n in enumerate(lengths):
        expected = alone(q[b : b + 1, :, :n], k[b : b + 1, :, :n], v[b : b + 1, :, :n])
        assert torch.equal(out[b : b + 1, :, :n], expected)
        assert (out[b, :, n:] == 0).all()
        assert (lse[b, :, n:] == -torch.inf).all()
    for step in range(3):
        at = [torch.tensor([n + step for n in lengths])[:, None, None, None]] * 3
        new = [x.gather(2, i.expand(B, x.shape[1], 1, x.shape[3])) for x, i in zip((q, k, v), at, strict=True)]
        cache.append(*new[1:])
        out = attend(new[0], cache)
        for b, n in enumerate(lengths):
            part = slice(0, n + step + 1)
            expected = alone(*(x[b : b + 1, :, part] for x in (q, k, v)))[:, :, -1:]
            np.testing.assert_allclose(out[b : b + 1], expected, rtol=1e-12)


def test_a_request_gets_the_same_result_alone_and_in_a_batch():
    """Batch of 1 and of 7, other lengths beside it: bitwise the same."""
    q, k, v = tokens(11, torch.float32, b=7)
    batch, single = PagedKVCache(n_pages=40, page_size=3), PagedKVCache(n_pages=4, page_size=3)
    batch.append(k, v, new_lengths=[11, 3, 8, 0, 5, 7, 1])
    single.append(k[2:3], v[2:3], new_lengths=[8])
    assert torch.equal(attend(q, batch)[2:3], attend(q[2:3], single))


def test_options_of_each_sequence():
    """Masks and slopes with a batch axis give each sequence its own rows and columns; those without serve all."""
    q, k, v = tokens(6)
    lengths = [6, 3, 5]
    rng = np.random.default_rng(1)
    cache = PagedKVCache(n_pages=9, page_size=2)
    cache.append(k, v, new_lengths=lengths)
    slopes = torch.from_numpy(rng.uniform(0.1, 1, (B, H_Q)))
    for shape in ((6,), (6, 6), (1, 1, 6, 6), (B, 1, 1, 6), (B, H_Q, 6, 6), (B, H_Q, 6, 1), (6, 1)):
        mask = torch.from_numpy(rng.standard_normal(shape))
        whole = mask.expand(B, H_Q, 6, 6)
        out = attend(q, cache, mask=mask, alibi_slopes=slopes)
        for b, n in enumerate(lengths):
            one = slice(b, b + 1)
            expected = attention(q[one, :, :n], k[one, :, :n], v[one, :, :n], is_causal=True,
                                 mask=whole[one, :, :n, :n], alibi_slopes=slopes[b])  # fmt: skip
            np.testing.assert_allclose(out[one, :, :n], expected, rtol=1e-12, atol=1e-14)


def test_after_truncation_the_rows_of_the_last_append_count():
    """Of four guessed tokens one sequence keeps two: its first two rows are answered, the others are 0."""
    q, k, v = tokens(9)
    cache = PagedKVCache(n_pages=20, page_size=2)
    cache.append(k[:, :, :5], v[:, :, :5])
    cache.append(k[:, :, 5:], v[:, :, 5:])
    whole = attend(q[:, :, 5:], cache)
    cache.truncate([9, 7, 4])
    out = attend(q[:, :, 5:], cache)
    assert torch.equal(out[0], whole[0])
    np.testing.assert_allclose(out[1, :, :2], whole[1, :, :2], rtol=1e-12)
    assert (out[1, :, 2:] == 0).all()
    assert (out[2] == 0).all()
    with pytest.raises(ShapeError, match=r"^q has length 2 \(axis t\) but the last append had 4 rows, of which "
                       r"\[4, 2, 0\] were tokens: they must be equal$"):  # fmt: skip
        attend(q[:, :, :2], cache)


def test_freed_pages_are_used_again():
    """A full memory takes another request as soon as one is freed, and the others do not notice."""
    q, k, v = tokens(6)
    cache = PagedKVCache(n_pages=9, page_size=2)
    cache.append(k, v)
    assert cache.n_free_pages == 0
    before = state(cache)
    with pytest.raises(ShapeError, match=r"^k needs 3 more pages of 2 positions but 0 of 9 are free$"):
        cache.append(k[:, :, :1], v[:, :, :1])
    assert state(cache) == before
    pages = cache.page_table[1].tolist()
    cache.free(1)
    assert cache.lengths.tolist() == [6, 0, 6]
    cache.append(k * 2, v * 2, new_lengths=[0, 6, 0])
    assert sorted(cache.page_table[1].tolist()) == sorted(pages)
    assert torch.equal(cache.sequence(1)[0], k[1:2] * 2)
    assert torch.equal(cache.sequence(2)[0], k[2:3])
    out = attend(q, cache)
    np.testing.assert_allclose(out[1:2], alone(q[1:2], k[1:2] * 2, v[1:2] * 2), rtol=1e-12)
    assert (out[0] == 0).all()  # no row of the last append was this sequence's


def test_memory_is_what_was_asked_for():
    """n_pages · page_size positions, from the first append on; at most page_size − 1 of each sequence are wasted."""
    _, k, v = tokens(7)
    cache = PagedKVCache(n_pages=12, page_size=4)
    cache.append(k, v)
    assert cache.nbytes == 12 * 4 * H_KV * (D + D_V) * 8
    assert cache.n_free_pages == 12 - 2 * B


BAD_PAGES = [
    ([[0, 9]], [5], "page_table[0, 1] is 9: expected 0 to 8, for 9 pages"),
    ([[0, -1]], [5], "page_table[0, 1] is -1: expected 0 to 8, for 9 pages"),
    ([[0, 1], [2, 1]], [5, 4], "page_table[1, 1] is 1, as is page_table[0, 1]: a page has one owner"),
    ([[0, 1]], [7], "lengths[0] is 7: expected 0 to 6, 2 pages of 3"),
    ([[0, 1]], [-1], "lengths[0] is -1: expected 0 to 6, 2 pages of 3"),
    ([[0, 1]], [3, 3], "lengths has 2 sequences (axis b) but page_table 1: must be equal"),
]


@pytest.mark.parametrize(("table", "lengths", "text"), BAD_PAGES, ids=[text[:30] for *_, text in BAD_PAGES])
def test_page_tables_are_checked(table, lengths, text):
    """A table that points outside, shares a page, or is too short for its length, is refused with its place."""
    memory = [torch.zeros(9, H_KV, 3, n) for n in (D, D_V)]
    with pytest.raises(ShapeError, match="^" + re.escape(text) + "$"):
        PagedKVCache.from_pages(*memory, torch.tensor(table), torch.tensor(lengths))
    PagedKVCache.from_pages(*memory, [[0, 99]], [3])  # what no token needs is not looked at


@pytest.mark.parametrize(
    ("new", "text"),
    [
        ([1, 2], "new_lengths has 2 sequences (axis b) but k has 3: they must be equal"),
        ([1, 2, 5], "new_lengths[2] is 5: expected 0 to 4, the length of k (axis t)"),
        ([-1, 2, 3], "new_lengths[0] is -1: expected 0 to 4, the length of k (axis t)"),
    ],
)
def test_new_lengths_are_checked(new, text):
    """One for each sequence, none above the rows given; the cache is what it was, also where it was empty."""
    _, k, v = tokens(4)
    cache = PagedKVCache(n_pages=20, page_size=3)
    for _ in range(2):
        before = state(cache)
        with pytest.raises(ShapeError, match="^" + re.escape(text) + "$"):
            cache.append(k, v, new_lengths=new)
        assert state(cache) == before
        cache.append(k, v)


def test_sequences_that_are_not_there():
    """A sequence beyond the batch is an error that says how many there are, never an IndexError."""
    cache = PagedKVCache(n_pages=20, page_size=3)
    cache.append(*tokens(4)[1:])
    for ask in (cache.free, cache.sequence):
        for b in (3, -1):
            text = rf"^sequence is {b}: expected a whole number, 0 to 2, for 3 sequences$"
            with pytest.raises(ValueError, match=text):
                ask(b)
    with pytest.raises(ShapeError, match=r"^lengths has 2 sequences \(axis b\) but the cache has 3: must be equal$"):
        cache.truncate([1, 1])
