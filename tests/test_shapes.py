"""The checks behind every ShapeError: the text names the axis, what was expected and what came."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import ShapeError
from attnbook.shapes import check_attention, check_axes, check_mask

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
