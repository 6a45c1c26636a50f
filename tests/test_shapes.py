"""The checks behind every ShapeError: the text names the axis, what was expected and what came."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import ShapeError
from attnbook.shapes import (
    check_attention,
    check_axes,
    check_cu_seqlens,
    check_mask,
    check_options,
    check_varlen,
    check_window,
)

GOOD = {"q": (2, 8, 3, 7), "k": (2, 4, 5, 7), "v": (2, 4, 5, 11)}


def test_sizes_of_a_call_that_fits():
    """Every axis is found where the layout says, for anything that has a shape."""
    for library in (np.empty, torch.empty):
        sizes = check_attention(*(library(shape) for shape in GOOD.values()))
        assert (sizes.b, sizes.n_heads, sizes.n_kv_heads) == (2, 8, 4)
        assert (sizes.t_q, sizes.t_kv, sizes.head_dim, sizes.d_v) == (3, 5, 7, 11)
        assert sizes.scores == (2, 8, 3, 5)


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("q", (8, 3, 7), "q has 3 axes (8, 3, 7): expected 4, (b, h, t, d): batch, heads, positions, components"),
        (
            "k",
            (2, 4, 5, 7, 1),
            "k has 5 axes (2, 4, 5, 7, 1): expected 4, (b, h, t, d): batch, heads, positions, components",
        ),
        ("v", (), "v has 0 axes (): expected 4, (b, h, t, d): batch, heads, positions, components"),
        ("k", (3, 4, 5, 7), "k has batch 3 (axis b) but q has 2: they must be equal"),
        ("v", (1, 4, 5, 7), "v has batch 1 (axis b) but q has 2: they must be equal"),
        ("k", (2, 4, 5, 6), "k has head_dim 6 (axis d) but q has 7: they must be equal"),
        ("v", (2, 2, 5, 7), "v has 2 heads (axis h) but k has 4: they must be equal"),
        ("v", (2, 4, 6, 7), "v has length 6 (axis t) but k has 5: they must be equal"),
        ("q", (2, 7, 3, 7), "k has 4 heads (axis h) but q has 7: n_heads must be a multiple of n_kv_heads"),
    ],
)
def test_attention_errors(name, shape, text):
    """The first axis that does not fit is named."""
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        check_attention(*(np.empty(x) for x in (GOOD | {name: shape}).values()))


def test_no_key_heads():
    """No head at all is an empty call; queries without key heads are an error."""
    none = np.empty((2, 0, 5, 7))
    assert check_attention(none, none, none).n_heads == 0
    with pytest.raises(ShapeError, match=r"^k has 0 heads \(axis h\) but q has 8"):
        check_attention(np.empty((2, 8, 3, 7)), none, none)


@pytest.mark.parametrize("shape", [(), (5,), (1,), (3, 5), (3, 1), (8, 3, 5), (1, 3, 5), (2, 8, 3, 5), (2, 1, 1, 5)])
def test_masks_that_broadcast(shape):
    """Each axis is missing, 1, or the scores' own length."""
    check_mask(np.empty(shape), check_attention(*(np.empty(x) for x in GOOD.values())))


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((4,), "mask has length 4 along axis t_kv but the scores have 5: must be 5 or 1"),
        ((5, 3), "mask has length 3 along axis t_kv but the scores have 5: must be 5 or 1"),
        ((2, 5), "mask has length 2 along axis t_q but the scores have 3: must be 3 or 1"),
        ((2, 3, 5), "mask has length 2 along axis h but the scores have 8: must be 8 or 1"),
        ((3, 8, 3, 5), "mask has length 3 along axis b but the scores have 2: must be 2 or 1"),
        ((1, 2, 8, 3, 5), "mask has 5 axes (1, 2, 8, 3, 5): expected at most 4, (b, h, t_q, t_kv) = (2, 8, 3, 5)"),
    ],
)
def test_mask_errors(shape, text):
    """A mask that would broadcast to something else is refused."""
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        check_mask(np.empty(shape), check_attention(*(np.empty(x) for x in GOOD.values())))


def test_a_mask_may_not_widen_the_scores():
    """Scores of length 1 take masks of length 1 only."""
    sizes = check_attention(np.empty((1, 1, 1, 2)), np.empty((1, 1, 3, 2)), np.empty((1, 1, 3, 2)))
    with pytest.raises(ShapeError, match=r"axis t_q but the scores have 1: must be 1$"):
        check_mask(np.empty((2, 3)), sizes)


def test_check_axes_counts_names():
    """Any list of axes may be asked for; the error says what their letters stand for."""
    check_axes("x", np.empty((2, 3)), "t d")
    with pytest.raises(
        ShapeError, match=r"^x has 2 axes \(2, 3\): expected 3, \(b, t, d\): batch, positions, components$"
    ):
        check_axes("x", np.empty((2, 3)), "b t d")


def sizes():
    """The sizes of the call that fits."""
    return check_attention(*(np.empty(shape) for shape in GOOD.values()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True, "window": 1},
        {"is_causal": True, "window": np.int64(3)},
        {"softcap": 50},
        {"softcap": np.float32(0.5)},
        {"scale": 0},
        {"scale": -1.5},
        {"alibi_slopes": np.empty(8)},
        {"alibi_slopes": np.empty((2, 8))},
        {"sinks": np.empty(8)},
    ],
)
def test_options_that_fit(options):
    """Every option in its range is let through, NumPy's numbers too."""
    check_options(sizes(), **options)


WINDOW = "expected a whole number of keys, at least 1 (the query's own), or None"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"window": 4}, ValueError,
         "window is 4 but is_causal is False: a window looks back, so it needs is_causal=True"),
        ({"is_causal": True, "window": 0}, ValueError, f"window is 0: {WINDOW}"),
        ({"is_causal": True, "window": -1}, ValueError, f"window is -1: {WINDOW}"),
        ({"is_causal": True, "window": 2.0}, ValueError, f"window is 2.0: {WINDOW}"),
        ({"is_causal": True, "window": True}, ValueError, f"window is True: {WINDOW}"),
        ({"softcap": -30.0}, ValueError, "softcap is -30.0: expected a finite number above 0, or None for no cap"),
        ({"softcap": 0}, ValueError, "softcap is 0: expected a finite number above 0, or None for no cap"),
        ({"softcap": float("inf")}, ValueError, "softcap is inf: expected a finite number above 0, or None for no cap"),
        ({"softcap": float("nan")}, ValueError, "softcap is nan: expected a finite number above 0, or None for no cap"),
        ({"softcap": True}, ValueError, "softcap is True: expected a finite number above 0, or None for no cap"),
        ({"scale": float("nan")}, ValueError, "scale is nan: expected a finite number, or None for 1/√head_dim"),
        ({"scale": "1"}, ValueError, "scale is '1': expected a finite number, or None for 1/√head_dim"),
        ({"alibi_slopes": np.empty(4)}, ShapeError,
         "alibi_slopes has shape (4,): expected (h,) = (8,) or (b, h) = (2, 8)"),
        ({"alibi_slopes": np.empty((1, 8))}, ShapeError,
         "alibi_slopes has shape (1, 8): expected (h,) = (8,) or (b, h) = (2, 8)"),
        ({"sinks": np.empty((2, 8))}, ShapeError, "sinks has shape (2, 8): expected (h,) = (8,)"),
        ({"sinks": np.empty(())}, ShapeError, "sinks has shape (): expected (h,) = (8,)"),
    ],
)  # fmt: skip
def test_option_errors(options, error, text):
    """An option out of its range says what it is and what was expected."""
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        check_options(sizes(), **options)


def test_no_components_need_a_scale():
    """With head_dim 0 there is no 1/√head_dim, so the scale must be given."""
    none = check_attention(np.empty((2, 8, 3, 0)), np.empty((2, 4, 5, 0)), np.empty((2, 4, 5, 11)))
    with pytest.raises(ShapeError, match=r"^q has head_dim 0 \(axis d\): expected at least 1, or a scale$"):
        check_options(none)
    check_options(none, scale=1.0)


def test_a_window_can_be_checked_alone():
    """Masks check their window with the same text."""
    check_window(None, is_causal=False)
    with pytest.raises(ValueError, match=r"^window is 0: expected"):
        check_window(0, is_causal=True)


PACKED = {"q": (13, 8, 7), "k": (17, 4, 7), "v": (17, 4, 11)}


def test_sizes_of_packed_sequences():
    """Every axis of the packed layout is found."""
    found = check_varlen(*(np.empty(shape) for shape in PACKED.values()))
    assert (found.t_q, found.t_kv, found.n_heads, found.n_kv_heads) == (13, 17, 8, 4)
    assert (found.head_dim, found.d_v) == (7, 11)


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("q", (1, 8, 13, 7), "q has 4 axes (1, 8, 13, 7): expected 3, (t, h, d): positions, heads, components"),
        ("k", (17, 4, 5), "k has head_dim 5 (axis d) but q has 7: they must be equal"),
        ("v", (17, 2, 11), "v has 2 heads (axis h) but k has 4: they must be equal"),
        ("v", (16, 4, 11), "v has length 16 (axis t) but k has 17: they must be equal"),
        ("q", (13, 7, 7), "k has 4 heads (axis h) but q has 7: n_heads must be a multiple of n_kv_heads"),
    ],
)
def test_packed_errors(name, shape, text):
    """The first axis that does not fit is named, in the packed layout too."""
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        check_varlen(*(np.empty(x) for x in (PACKED | {name: shape}).values()))


@pytest.mark.parametrize(
    ("of_q", "of_k", "text"),
    [
        ([], [0], "cu_seqlens_q is empty: expected 0 and then the end of each sequence"),
        ([1, 13], [0, 17], "cu_seqlens_q[0] is 1: expected 0, the start of the first sequence"),
        ([0, 5, 3, 13], [0, 5, 5, 17], "cu_seqlens_q[2] is 3 but cu_seqlens_q[1] is 5: they must not fall"),
        ([0, 13], [0, -2], "cu_seqlens_k[1] is -2 but cu_seqlens_k[0] is 0: they must not fall"),
        ([0, 13], [0, 18], "cu_seqlens_k ends at 18 but k has length 17 (axis t): expected at most 17"),
        ([0, 5, 13], [0, 17], "cu_seqlens_k counts 1 sequences but cu_seqlens_q 2: they must be equal"),
    ],
)
def test_cumulative_lengths_errors(of_q, of_k, text):
    """Cumulative lengths that fall, end outside, or count other sequences say which entry is wrong."""
    packed = check_varlen(*(np.empty(shape) for shape in PACKED.values()))
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        check_cu_seqlens(of_q, of_k, packed)


@pytest.mark.parametrize(("of_q", "of_k"), [([0], [0]), ([0, 13], [0, 17]), ([0, 0, 6, 6], [0, 4, 4, 9])])
def test_cumulative_lengths_that_fit(of_q, of_k):
    """No sequence, one, empty ones, and rows left over at the end are all legal."""
    check_cu_seqlens(of_q, of_k, check_varlen(*(np.empty(shape) for shape in PACKED.values())))
