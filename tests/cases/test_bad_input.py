"""What does not fit, through every public function: one clear error that names what, where, and what was expected."""

import re

import numpy as np
import pytest
import torch

import attnbook
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
    "fractions": (
        torch.tensor([0.0, 5.0]),
        [0, 7],
        DTypeError,
        "cu_seqlens_q has dtype torch.float32: expected whole numbers",
    ),
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
