"""What does not fit is refused at the door with one clear error, the same whatever would have run."""

import re

import numpy as np
import pytest
import torch

from attnbook import attention
from attnbook.api import attention_varlen
from attnbook.errors import DTypeError, ShapeError
from tests.api.samples import IMPLS, inputs


def shapes(q=(2, 6, 13, 7), k=(2, 3, 17, 7), v=(2, 3, 17, 5)):
    return [torch.zeros(x) for x in (q, k, v)]


def changed(i, change):
    """Good inputs, one of them changed."""
    found = inputs()
    found[i] = change(found[i])
    return found


zeros, bools, ints = torch.zeros, torch.zeros(17, dtype=torch.bool), torch.zeros(17, dtype=torch.int64)

WRONG = {
    "q of three axes": (shapes(q=(6, 13, 7)), {}, ShapeError,
                        "q has 3 axes (6, 13, 7): expected 4, (b, h, t, d): batch, heads, positions, components"),
    "another batch": (shapes(k=(1, 3, 17, 7)), {}, ShapeError,
                      "k has batch 1 (axis b) but q has 2: they must be equal"),
    "heads that don't divide": (shapes(k=(2, 4, 17, 7), v=(2, 4, 17, 5)), {}, ShapeError,
                                "k has 4 heads (axis h) but q has 6: n_heads must be a multiple of n_kv_heads"),
    "values of other heads": (shapes(v=(2, 6, 17, 5)), {}, ShapeError, "v has 6 heads (axis h) but k has 3"),
    "values of another length": (shapes(v=(2, 3, 16, 5)), {}, ShapeError, "v has length 16 (axis t) but k has 17"),
    "another head_dim": (shapes(k=(2, 3, 17, 5)), {}, ShapeError, "k has head_dim 5 (axis d) but q has 7"),
    "no head_dim": (shapes(q=(2, 6, 13, 0), k=(2, 3, 17, 0)), {}, ShapeError,
                    "q has head_dim 0 (axis d): expected at least 1, or a scale"),
    "mixed dtypes": (changed(1, torch.Tensor.double), {}, DTypeError,
                     "k has dtype torch.float64 but q has torch.float32: they must be equal"),
    "integers": ([x.long() for x in inputs()], {}, DTypeError, "q has dtype torch.int64: expected"),
    "complex numbers": ([x.to(torch.complex64) for x in inputs()], {}, DTypeError, "q has dtype torch.complex64"),
    "eight bits": ([x.to(torch.float8_e4m3fn) for x in inputs()], {}, DTypeError,
                   "q has dtype torch.float8_e4m3fn: expected float64, float32, float16 or bfloat16"),
    "mixed devices": (changed(2, lambda x: x.to("meta")), {}, ValueError,
                      "v is on device meta but q on cpu: they must be on one device"),
    "a mask elsewhere": (inputs(), {"mask": bools.to("meta")}, ValueError, "mask is on device meta but q on cpu"),
    "mixed libraries": (changed(2, lambda x: x.numpy()), {}, TypeError, "v comes from numpy but q from torch"),
    "a mask of another library": (inputs(), {"mask": bools.numpy()}, TypeError, "mask comes from numpy but q from"),
    "a mask of integers": (inputs(), {"mask": ints}, DTypeError,
                           "mask has dtype torch.int64: expected booleans (True = may attend) or floats to be added"),
    "a mask too long": (inputs(), {"mask": zeros(18)}, ShapeError,
                        "mask has length 18 along axis t_kv but the scores have 17: must be 17 or 1"),
    "a mask of other heads": (inputs(), {"mask": zeros(3, 1, 17)}, ShapeError,
                              "mask has length 3 along axis h but the scores have 6: must be 6 or 1"),
    "a mask of five axes": (inputs(), {"mask": zeros(1, 1, 1, 1, 1)}, ShapeError,
                            "mask has 5 axes (1, 1, 1, 1, 1): expected at most 4"),
    "a window without causality": (inputs(), {"window": 3}, ValueError, "window is 3 but is_causal is False"),
    "a window of none": (inputs(), {"window": 0, "is_causal": True}, ValueError, "window is 0: expected a whole"),
    "a window of a half": (inputs(), {"window": 2.5, "is_causal": True}, ValueError, "window is 2.5"),
    "a negative cap": (inputs(), {"softcap": -1.0}, ValueError, "softcap is -1.0: expected a finite number above 0"),
    "an infinite scale": (inputs(), {"scale": torch.inf}, ValueError, "scale is inf: expected a finite number"),
    "slopes of other heads": (inputs(), {"alibi_slopes": zeros(3)}, ShapeError,
                              "alibi_slopes has shape (3,): expected (h,) = (6,) or (b, h) = (2, 6)"),
    "slopes of integers": (inputs(), {"alibi_slopes": zeros(6).long()}, DTypeError, "alibi_slopes has dtype"),
    "sinks of each sequence": (inputs(), {"sinks": zeros(2, 6)}, ShapeError,
                               "sinks has shape (2, 6): expected (h,) = (6,)"),
    "sinks elsewhere": (inputs(), {"sinks": zeros(6, device="meta")}, ValueError, "sinks is on device meta"),
}  # fmt: skip


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("name", WRONG)
def test_one_clear_error(impl, name):
    """It names the axis, dtype, device or option, what was expected, and what came."""
    tensors, options, error, text = WRONG[name]
    with pytest.raises(error, match=re.escape(text)):
        attention(*tensors, impl=impl, **options)


def test_short_calls_are_checked_too():
    """The short way to torch's own attention lets nothing through that the long way would refuse."""
    q = k = v = torch.zeros(2, 3, 67, 8)
    wrong = [
        ((q, k[:1], v[:1]), {}, "k has batch 1 (axis b) but q has 2"),
        ((q, k[..., :5], v), {}, "k has head_dim 5"),
        ((q, k, v[:, :2]), {}, "v has 2 heads"),
        ((q[:, :2], k, v), {}, "k has 3 heads (axis h) but q has 2"),
        ((q[0], k, v), {}, "q has 3 axes"),
        ((q[0], k[0], v[0]), {}, "q has 3 axes"),
        ((q, k.double(), v), {}, "k has dtype torch.float64"),
        ((q.long(), k.long(), v.long()), {}, "q has dtype torch.int64"),
        ((q, k, v), {"scale": torch.nan}, "scale is nan"),
        ((q, k, v), {"scale": "1"}, "scale is '1'"),
        ((q, k, v), {"scale": True}, "scale is True"),
        ((q[..., :0], k[..., :0], v[..., :0]), {}, "q has head_dim 0"),
    ]
    for tensors, options, text in wrong:
        for is_causal in (False, True):
            with pytest.raises((ShapeError, DTypeError, ValueError), match=re.escape(text)):
                attention(*tensors, is_causal=is_causal, **options)


PACKED = [torch.zeros(11, 6, 7), torch.zeros(13, 3, 7), torch.zeros(13, 3, 5)]
WRONG_ENDS = {
    "a start elsewhere": ([1, 5], [0, 13], ShapeError, "cu_seqlens_q[0] is 1: expected 0"),
    "falling": ([0, 7, 5], [0, 6, 13], ShapeError, "cu_seqlens_q[2] is 5 but cu_seqlens_q[1] is 7: they must not fall"),
    "beyond the end": ([0, 12], [0, 13], ShapeError, "cu_seqlens_q ends at 12 but q has length 11 (axis t)"),
    "other counts": ([0, 5, 11], [0, 13], ShapeError, "cu_seqlens_k counts 1 sequences but cu_seqlens_q 2"),
    "none": ([], [], ShapeError, "cu_seqlens_q is empty"),
}  # fmt: skip


@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
@pytest.mark.parametrize("name", WRONG_ENDS)
def test_where_sequences_end(impl, kind, name):
    """As lists, tensors and arrays."""
    of_q, of_k, error, text = WRONG_ENDS[name]
    with pytest.raises(error, match=re.escape(text)):
        attention_varlen(*PACKED, kind(of_q), kind(of_k), impl=impl)


@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
def test_ends_that_are_no_whole_numbers(impl):
    """A list is named by its entry, a tensor or an array by its dtype."""
    for ends, text in (
        ([0.0, 11.0], "cu_seqlens_q[0] is 0.0: expected a whole number"),
        (torch.tensor([0.0, 11.0]), "cu_seqlens_q has dtype torch.float32: expected whole numbers"),
        (np.array([0.0, 11.0]), "cu_seqlens_q has dtype float64: expected whole numbers"),
    ):
        with pytest.raises(DTypeError, match=re.escape(text)):
            attention_varlen(*PACKED, ends, [0, 13], impl=impl)


WRONG_PACKED = {
    "four axes": ([x[None] for x in PACKED], {}, ShapeError, "q has 4 axes (1, 11, 6, 7): expected 3, (t, h, d)"),
    "heads": ([PACKED[0][:, :5], *PACKED[1:]], {}, ShapeError, "k has 3 heads (axis h) but q has 5"),
    "dtypes": ([PACKED[0], PACKED[1].half(), PACKED[2]], {}, DTypeError, "k has dtype torch.float16 but q has"),
    "window": (PACKED, {"window": 3}, ValueError, "window is 3 but is_causal is False"),
    "slopes": (
        PACKED,
        {"alibi_slopes": zeros(3, 6)},
        ShapeError,
        "alibi_slopes has shape (3, 6): expected (h,) = (6,)",
    ),
    "mask": (PACKED, {"mask": zeros(11, 12)}, ShapeError, "mask has length 12 along axis t_kv but the scores have 13"),
    "mask of integers": (PACKED, {"mask": zeros(11, 13).long()}, DTypeError, "mask has dtype torch.int64"),
}


@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("name", WRONG_PACKED)
def test_packed_input(impl, name):
    """The same kinds of mistake, packed."""
    tensors, options, error, text = WRONG_PACKED[name]
    with pytest.raises(error, match=re.escape(text)):
        attention_varlen(*tensors, [0, 5, 11], [0, 5, 13], impl=impl, **options)
