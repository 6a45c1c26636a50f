"""What does not fit, through every public function: one clear error that names what, where, and what was expected."""

import re

import numpy as np
import pytest
import torch

import attnbook
from attnbook import reference
from attnbook.errors import DTypeError, ShapeError
from tests.cases.ways import qkv

ones, zeros = torch.ones, torch.zeros


def same(x):
    return x


def three_heads(x):
    return x[:, :3]


# Each: which input, what is done to it (four axes here, three where packed), options, error, text.
BAD_ATTENTION = {
    "a rank too few": ("q", lambda x: x[0], {}, ShapeError, "q has {one_less} axes"),
    "a rank too many": ("k", lambda x: x[None], {}, ShapeError, "k has {one_more} axes"),
    "heads that don't divide": ("q", three_heads, {}, ShapeError, "k has 2 heads (axis h) but q has 3: n_heads must"),
    "another dtype": ("k", torch.Tensor.double, {}, DTypeError, "k has dtype torch.float64 but q has torch.float32"),
    "another device": ("v", lambda x: x.to("meta"), {}, ValueError, "v is on device meta but q on cpu"),
    "an array beside tensors": ("k", torch.Tensor.numpy, {}, TypeError, "k comes from numpy but q from torch"),
    "a list": ("k", torch.Tensor.tolist, {}, TypeError, "k is a list: expected an array or a tensor"),
    "None": ("v", lambda x: None, {}, TypeError, "v is a NoneType: expected an array or a tensor"),
    "no q": ("q", lambda x: None, {}, TypeError, "q is a NoneType: expected an array or a tensor"),
    "a sparse q": ("q", torch.Tensor.to_sparse, {}, TypeError, "q is of layout torch.sparse_coo: expected a dense"),
    "a sparse k": ("k", torch.Tensor.to_sparse, {}, TypeError, "k is of layout torch.sparse_coo: expected a dense"),
    "integers": (None, torch.Tensor.int, {}, DTypeError, "q has dtype torch.int32"),
    "window without causal": (None, same, {"window": 3}, ValueError, "window is 3 but is_causal is False"),
    "window 0": (None, same, {"window": 0, "is_causal": True}, ValueError, "window is 0: expected a whole number"),
    "window of a tensor": (None, same, {"window": ones(()), "is_causal": True}, ValueError, "window is tensor(1.)"),
    "softcap below 0": (None, same, {"softcap": -1.0}, ValueError, "softcap is -1.0: expected a finite number above 0"),
    "softcap 0": (None, same, {"softcap": 0}, ValueError, "softcap is 0: expected a finite number above 0"),
    "scale NaN": (None, same, {"scale": torch.nan}, ValueError, "scale is nan: expected a finite number"),
    "scale of a tensor": (None, same, {"scale": ones(())}, ValueError, "scale is tensor(1.): expected a finite number"),
    "is_causal of a word": (None, same, {"is_causal": "no"}, ValueError, "is_causal is 'no': expected True or False"),
    "is_causal None": (None, same, {"is_causal": None}, ValueError, "is_causal is None: expected True or False"),
    "a mask of another shape": (
        None,
        same,
        {"mask": ones(5, 6).bool()},
        ShapeError,
        "mask has length 6 along axis t_kv",
    ),
    "a mask of integers": (None, same, {"mask": ones(5, 7).int()}, DTypeError, "mask has dtype torch.int32: expected"),
    "a mask that is a list": (None, same, {"mask": [True] * 7}, TypeError, "mask is a list: expected an array"),
    "a mask that is True": (None, same, {"mask": True}, TypeError, "mask is a bool: expected an array"),
    "a mask of NumPy": (
        None,
        same,
        {"mask": np.ones((5, 7), bool)},
        TypeError,
        "mask comes from numpy but q from torch",
    ),
    "slopes of other heads": (None, same, {"alibi_slopes": [0.5] * 3}, ShapeError, "alibi_slopes has shape (3,)"),
    "one slope": (None, same, {"alibi_slopes": 0.5}, ShapeError, "alibi_slopes has shape (): expected (h,) = (4,)"),
    "slopes of words": (None, same, {"alibi_slopes": "abcd"}, TypeError, "alibi_slopes is 'abcd': expected a floating"),
    "slopes of no rectangle": (None, same, {"alibi_slopes": [[1], [1, 2]]}, TypeError, "alibi_slopes is [[1], [1, 2]]"),
    "slopes of booleans": (None, same, {"alibi_slopes": np.ones(4, bool)}, TypeError, "alibi_slopes is array([ True,"),
    "sinks of each sequence": (None, same, {"sinks": zeros(2, 4)}, ShapeError, "sinks has shape (2, 4): expected (h,)"),
    "sinks of integers": (None, same, {"sinks": zeros(4).int()}, DTypeError, "sinks has dtype torch.int32"),
    "sinks None each": (None, same, {"sinks": [None] * 4}, TypeError, "sinks is [None, None, None, None]"),
    "an unknown implementation": (None, same, {"impl": "flash"}, ValueError, "impl is 'flash': expected one of"),
}


def bad_call(name, packed):
    which, change, options, error, text = BAD_ATTENTION[name]
    given = dict(zip("qkv", qkv(5, 7, heads=(4, 2)), strict=True))
    if packed:
        given = {key: x[0].transpose(0, 1).contiguous() for key, x in given.items()}
    given = {key: change(x) if which in (None, key) else x for key, x in given.items()}
    text = text.format(one_less=2 if packed else 3, one_more=4 if packed else 5)
    return given, options, error, re.escape(text)


@pytest.mark.parametrize("name", BAD_ATTENTION)
def test_attention(name):
    """Whatever would have run."""
    given, options, error, text = bad_call(name, packed=False)
    for impl in ("auto", "reference", "tiled", "sdpa"):
        if impl != "auto" and ("impl" in options or name == "no q"):
            continue
        with pytest.raises(error, match=text):
            attnbook.attention(**given, **({"impl": impl} | options))
    if name != "no q":  # what is no tensor is for the reference, whatever it is
        with pytest.raises(error, match=text):
            attnbook.explain(**given, **options)


@pytest.mark.parametrize("name", BAD_ATTENTION)
def test_attention_varlen(name):
    """Packed."""
    given, options, error, text = bad_call(name, packed=True)
    for impl in ("auto", "reference", "tiled"):
        if impl != "auto" and ("impl" in options or name == "no q"):
            continue
        with pytest.raises(error, match=text):
            attnbook.attention_varlen(**given, cu_seqlens_q=[0, 5], cu_seqlens_k=[0, 7], **({"impl": impl} | options))


@pytest.mark.parametrize(
    "name", [name for name in BAD_ATTENTION if BAD_ATTENTION[name][0] is None and name != "integers"]
)
@pytest.mark.parametrize("make", [attnbook.KVCache, lambda: attnbook.PagedKVCache(9, 3)])
def test_attend(make, name):
    """Over what a cache keeps."""
    given, options, error, text = bad_call(name, packed=False)
    cache = make()
    cache.append(given["k"], given["v"])
    if name in ("is_causal of a word", "is_causal None", "window without causal"):
        options = {"is_causal": False} | options
    with pytest.raises(error, match=text):
        attnbook.attend(given["q"], cache, **options)


ENDS = {
    "not rising": (
        [0, 4, 3],
        [0, 3, 7],
        ShapeError,
        "cu_seqlens_q[2] is 3 but cu_seqlens_q[1] is 4: they must not fall",
    ),
    "too long": ([0, 6], [0, 7], ShapeError, "cu_seqlens_q ends at 6 but q has length 5 (axis t): expected at most 5"),
    "too few": (
        [0, 5],
        [0, 3, 7],
        ShapeError,
        "cu_seqlens_k counts 2 sequences but cu_seqlens_q 1: they must be equal",
    ),
    "starts below 0": ([-1, 5], [0, 7], ShapeError, "cu_seqlens_q[0] is -1: expected 0"),
    "a number": (5, 7, ShapeError, "cu_seqlens_q is of type int: expected one axis"),
    "a tensor of no axis": (
        torch.tensor(5),
        torch.tensor(7),
        ShapeError,
        "cu_seqlens_q is one number: expected one axis",
    ),
    "two axes": (torch.tensor([[0, 5]]), [0, 7], ShapeError, "cu_seqlens_q is (1, 2): expected one axis"),
    "None": (None, [0, 7], ShapeError, "cu_seqlens_q is of type NoneType: expected one axis"),
    "None for k": ([0, 5], None, ShapeError, "cu_seqlens_k is of type NoneType: expected one axis"),
    "an iterator": (iter([0, 5]), [0, 7], ShapeError, "cu_seqlens_q is of type list_iterator: expected one axis"),
    "fractions": (torch.tensor([0.0, 5.0]), [0, 7], DTypeError, "cu_seqlens_q[0] is 0.0: expected a whole number"),
    "booleans": ([0, True], [0, 7], DTypeError, "cu_seqlens_q[1] is True: expected a whole number"),
    "words": ([0, "5"], [0, 7], DTypeError, "cu_seqlens_q[1] is '5': expected a whole number"),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("impl", ["auto", "reference", "tiled"])
def test_where_sequences_end(impl, name):
    """cu_seqlens of every kind that is none."""
    cu_q, cu_k, error, text = ENDS[name]
    q, k, v = (x[0].transpose(0, 1) for x in qkv(5, 7))
    with pytest.raises(error, match=re.escape(text)):
        attnbook.attention_varlen(q, k, v, cu_q, cu_k, impl=impl)


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
