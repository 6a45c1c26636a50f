"""What does not fit in caches, positions, layers and experts: one clear error that names what, where, and why."""

import re

import numpy as np
import pytest
import torch

import attnbook
from attnbook import reference
from attnbook.errors import DTypeError, ShapeError
from tests.cases.ways import qkv

ones, zeros = torch.ones, torch.zeros


PAGES = zeros(4, 2, 3, 5)


def paged(table, lengths):
    return attnbook.PagedKVCache.from_pages(PAGES, PAGES, table, lengths)


def appended(cache, t=5, **changes):
    """The cache with keys and values of 2 sequences appended, changed in some way."""
    k, v = qkv(t)[1:]
    cache.append(**({"k": k, "v": v} | changes))
    return cache


BAD_CACHE = {
    "overflow": (
        lambda: appended(attnbook.KVCache(4)),
        ShapeError,
        "k has length 5 (axis t) but the cache holds 0 of at most 4 positions: expected at most 4",
    ),
    "pages run out": (
        lambda: appended(attnbook.PagedKVCache(2, 3)),
        ShapeError,
        "k needs 4 more pages of 3 positions but 2",
    ),
    "a page outside": (lambda: paged([[0, 9]], [5]), ShapeError, "page_table[0, 1] is 9: expected 0 to 3, for 4 pages"),
    "a page below 0": (lambda: paged([[0, -1]], [5]), ShapeError, "page_table[0, 1] is -1: expected 0 to 3"),
    "a page of two": (
        lambda: paged([[0, 1], [1, 2]], [5, 6]),
        ShapeError,
        "page_table[1, 0] is 1, as is page_table[0, 1]",
    ),
    "half a page": (lambda: paged([[0, 1.5]], [5]), DTypeError, "page_table[0][1] is 1.5: expected a whole number"),
    "half a token": (
        lambda: paged([[0, 1]], torch.tensor([4.5])),
        DTypeError,
        "lengths[0] is 4.5: expected a whole number",
    ),
    "no table": (lambda: paged(None, [5]), TypeError, "page_table is None"),
    "a table of one axis": (
        lambda: paged([0, 1], [5]),
        TypeError,
        "page_table[0] is 0: expected a list of whole numbers",
    ),
    "half a new token": (
        lambda: appended(attnbook.PagedKVCache(9, 3), new_lengths=[1, 1.5]),
        DTypeError,
        "new_lengths[1] is 1.5: expected a whole number",
    ),
    "one new length": (lambda: appended(attnbook.PagedKVCache(9, 3), new_lengths=3), TypeError, "new_lengths is 3"),
    "more than there is": (
        lambda: appended(attnbook.PagedKVCache(9, 3), new_lengths=[1, 6]),
        ShapeError,
        "new_lengths[1] is 6: expected 0 to 5",
    ),
    "truncated by a half": (
        lambda: appended(attnbook.PagedKVCache(9, 3)).truncate([1, 1.5]),
        DTypeError,
        "lengths[1] is 1.5: expected a whole number",
    ),
    "another batch": (
        lambda: appended(appended(attnbook.KVCache()), k=zeros(3, 2, 1, 5), v=zeros(3, 2, 1, 5)),
        ShapeError,
        "k has batch 3 (axis b) but the cache has 2",
    ),
    "an array": (lambda: appended(attnbook.KVCache(), k=np.zeros((2, 2, 5, 5))), TypeError, "k is a ndarray: expected"),
    "integers": (
        lambda: appended(attnbook.RingKVCache(4), k=zeros(2, 2, 5, 5).int()),
        DTypeError,
        "k has dtype torch.int32",
    ),
    "no capacity": (lambda: attnbook.KVCache(0), ValueError, "capacity is 0: expected a whole number, at least 1"),
    "a window of None": (lambda: attnbook.RingKVCache(None), ValueError, "window is None: expected a whole number"),
    "an empty cache": (
        lambda: attnbook.attend(zeros(2, 2, 1, 5), attnbook.KVCache()),
        ValueError,
        "the cache is empty",
    ),
    "a query too many": (
        lambda: attnbook.attend(zeros(2, 2, 6, 5), appended(attnbook.KVCache())),
        ShapeError,
        "q has length 6 (axis t) but the cache has 5 tokens",
    ),
    "an array to attend": (
        lambda: attnbook.attend(np.zeros((2, 2, 1, 5)), appended(attnbook.KVCache())),
        TypeError,
        "q is a ndarray: expected a torch tensor",
    ),
    "no cache": (
        lambda: attnbook.attend(zeros(2, 2, 1, 5), zeros(2, 2, 5, 5)),
        TypeError,
        "cache is a Tensor: expected a KVCache, RingKVCache or PagedKVCache",
    ),
}


@pytest.mark.parametrize("name", BAD_CACHE)
def test_caches(name):
    """Appending, pages, attending."""
    call, error, text = BAD_CACHE[name]
    with pytest.raises(error, match=re.escape(text)):
        call()


X = zeros(2, 3, 5, 8)
BAD_REST = {
    "a position beyond the table": (
        lambda: attnbook.LearnedPositions(4, 3)(torch.tensor([4])),
        ShapeError,
        "position 4 is outside",
    ),
    "positions beyond the table": (
        lambda: attnbook.LearnedPositions(4, 3)(5),
        ShapeError,
        "5 positions (axis t) are more",
    ),
    "a position below 0": (lambda: attnbook.LearnedPositions(4, 3)([-1]), ShapeError, "position -1 is outside"),
    "half a position": (lambda: attnbook.LearnedPositions(4, 3)(2.7), DTypeError, "positions has dtype torch.float32"),
    "no position": (
        lambda: attnbook.LearnedPositions(4, 3)(None),
        TypeError,
        "positions is None: expected whole numbers",
    ),
    "half-precision positions": (lambda: attnbook.rope(X, torch.arange(5.0).half()), DTypeError, "positions has dtype"),
    "positions of another length": (lambda: attnbook.rope(X, torch.arange(6)), ShapeError, "positions has shape (6,)"),
    "an odd head": (
        lambda: attnbook.rope(X[..., :7]),
        ShapeError,
        "x has head_dim 7 (axis d): expected an even number",
    ),
    "part of a pair": (lambda: attnbook.rope(X, rotary_dim=3), ValueError, "rotary_dim is 3: expected an even number"),
    "a fraction of a pair": (
        lambda: attnbook.rope(X, rotary_dim=4.0),
        ValueError,
        "rotary_dim is 4.0: expected an even",
    ),
    "theta of words": (lambda: attnbook.rope(X, theta="1e4"), ValueError, "theta is '1e4': expected a finite number"),
    "scaling of words": (lambda: attnbook.rope(X, scaling="linear"), TypeError, "scaling is 'linear': expected"),
    "rope of a list": (lambda: attnbook.rope([[1.0]]), TypeError, "is a list: expected an array or a tensor"),
    "rope of nothing": (lambda: attnbook.rope(None), TypeError, "there is no array"),
    "no head": (lambda: attnbook.alibi_slopes(0), ValueError, "n_heads is 0: expected at least 1"),
    "half a head": (lambda: attnbook.alibi_slopes(8.0), ValueError, "n_heads is 8.0: expected a whole number"),
    "softmax along no axis": (lambda: attnbook.softmax(X, axis=4), ShapeError, "axis is 4 but x has 4 axes"),
    "softmax of a number": (lambda: attnbook.softmax(ones(())), ShapeError, "axis is -1 but x has 0 axes"),
    "softmax of integers": (lambda: attnbook.softmax(X.int()), DTypeError, "x has dtype torch.int32"),
    "logsumexp along no axis": (lambda: reference.logsumexp(X, axis=-5), ShapeError, "axis is -5 but x has 4 axes"),
    "online along no axis": (lambda: reference.online_softmax(X, axis=4), ShapeError, "axis is 4 but x has 4 axes"),
    "128 bits": (lambda: attnbook.softmax(np.ones(3, np.longdouble)), DTypeError, "expected a floating-point dtype"),
    "a width of words": (lambda: attnbook.MultiHeadAttention("16", 4), ValueError, "d_model is '16': expected a whole"),
    "heads of a fraction": (
        lambda: attnbook.MultiHeadAttention(16, 4.0),
        ValueError,
        "n_heads is 4.0: expected a whole",
    ),
    "heads that don't divide": (
        lambda: attnbook.MultiHeadAttention(16, 4, 3),
        ShapeError,
        "n_heads is 4 and n_kv_heads 3",
    ),
    "rope of words": (
        lambda: attnbook.MultiHeadAttention(16, 4, rope="yes"),
        ValueError,
        "rope is 'yes': expected True",
    ),
    "a layer's window": (lambda: attnbook.MultiHeadAttention(16, 4, window=3), ValueError, "window is 3 but is_causal"),
    "no norm": (
        lambda: attnbook.TransformerBlock(16, 4, norm="mid"),
        ValueError,
        "norm is 'mid': expected 'pre' or 'post'",
    ),
    "two axes": (lambda: attnbook.MultiHeadAttention(8, 4)(X[0, 0]), ShapeError, "x has 2 axes (5, 8): expected 3"),
    "another width": (
        lambda: attnbook.MultiHeadAttention(16, 4)(X[0]),
        ShapeError,
        "x has 8 components (axis d): expected",
    ),
}


@pytest.mark.parametrize("name", BAD_REST)
def test_the_rest(name):
    """Positions, softmax, layers."""
    call, error, text = BAD_REST[name]
    with pytest.raises(error, match=re.escape(text)):
        call()


def moe(**changes):
    """A mixture of 4 experts with something changed."""
    given = {
        "x": zeros(7, 3),
        "router_weight": zeros(4, 3),
        "w_gate": zeros(4, 3, 5),
        "w_up": zeros(4, 3, 5),
        "w_down": zeros(4, 5, 3),
        "top_k": 2,
    }
    return attnbook.moe(**(given | changes))


BAD_MOE = {
    "too many experts": (
        {"top_k": 5},
        ValueError,
        "top_k is 5 but router_weight has 4 experts (axis e): expected 1 to 4",
    ),
    "no expert": ({"top_k": 0}, ValueError, "top_k is 0"),
    "half an expert": ({"top_k": 2.0}, ValueError, "top_k is 2.0: expected a whole number"),
    "another score": ({"scoring": "relu"}, ValueError, "scoring is 'relu': expected 'softmax' or 'sigmoid'"),
    "no token axis": ({"x": zeros(3)}, ShapeError, "x has 1 axes (3,): expected 2, (t, d), or 3, (b, t, d)"),
    "integers": ({"x": zeros(7, 3).int()}, DTypeError, "x has dtype torch.int32"),
    "an array": ({"x": np.zeros((7, 3))}, TypeError, "x is a ndarray: expected a torch tensor"),
    "an array of weights": ({"w_up": np.zeros((4, 3, 5))}, TypeError, "w_up is a ndarray: expected a torch tensor"),
    "nothing": ({"router_weight": None}, TypeError, "router_weight is a NoneType: expected"),
    "a list": ({"selection_bias": [0.0] * 4}, TypeError, "selection_bias is a list: expected"),
    "w_down turned": ({"w_down": zeros(4, 3, 5)}, ShapeError, "w_down has 5 components (axis d) but x has 3"),
    "another dtype": ({"w_gate": zeros(4, 3, 5).half()}, DTypeError, "w_gate has dtype torch.float16 but x has"),
    "another device": ({"w_gate": zeros(4, 3, 5, device="meta")}, ValueError, "w_gate is on device meta but x on cpu"),
    "no capacity": ({"capacity_factor": 0.0}, ValueError, "capacity_factor is 0.0: expected a finite number above 0"),
    "two shared weights": ({"shared": (zeros(1, 3, 5),) * 2}, ValueError, "shared holds 2 arrays: expected 3"),
    "an unknown implementation": ({"impl": "sdpa"}, ValueError, "impl is 'sdpa': expected one of"),
}


@pytest.mark.parametrize("impl", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("name", BAD_MOE)
def test_moe(name, impl):
    """Experts, tokens, routing."""
    changes, error, text = BAD_MOE[name]
    with pytest.raises(error, match=re.escape(text)):
        moe(**({"impl": impl} | changes))
