"""Masks by the definition: True = may attend, causal and window aligned bottom-right, padding on either side."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference import causal_mask, padding_mask, window_mask
from attnbook.reference.masks import distance, split_mask


def rows(mask):
    """A mask as text, one row a query: `1` may attend, `.` may not."""
    return ["".join("1" if x else "." for x in row) for row in np.asarray(mask)]


@pytest.mark.parametrize(
    ("t_q", "t_kv", "expected"),
    [
        (3, 3, ["1..", "11.", "111"]),
        (3, None, ["1..", "11.", "111"]),
        (2, 4, ["111.", "1111"]),
        (1, 5, ["11111"]),  # one new token sees the whole past
        (4, 2, ["..", "..", "1.", "11"]),
        (5, 2, ["..", "..", "..", "1.", "11"]),
        (2, 0, ["", ""]),
        (0, 3, []),
    ],
)
def test_causal_masks_as_drawn(t_q, t_kv, expected):
    """Query i sees key j when j ≤ i + t_kv − t_q."""
    assert rows(causal_mask(t_q, t_kv)) == expected


def test_causal_mask_is_of_the_library_and_device_asked_for():
    """NumPy by default, else like `like`."""
    assert isinstance(causal_mask(3), np.ndarray)
    mask = causal_mask(3, like=torch.zeros(1, device="meta"))
    assert (mask.dtype, mask.device.type) == (torch.bool, "meta")
    assert rows(causal_mask(3, 5, like=torch.zeros(1))) == rows(causal_mask(3, 5))


@pytest.mark.parametrize("library", [np.array, torch.tensor])
def test_padding_masks_as_drawn(library):
    """The filling is at the side that is named; the tokens keep their number."""
    lengths = library([3, 0, 4])
    right, left = padding_mask(lengths, 4), padding_mask(lengths, 4, side="left")
    assert tuple(right.shape) == (3, 1, 1, 4)
    assert rows(right[:, 0, 0]) == ["111.", "....", "1111"]
    assert rows(left[:, 0, 0]) == [".111", "....", "1111"]


def test_padding_errors():
    """A length outside the axis, and a side that is none."""
    with pytest.raises(ShapeError, match=r"^lengths\[1\] is 5 \(axis b\): expected 0 to 4, the length of axis t$"):
        padding_mask(np.array([1, 5]), 4)
    with pytest.raises(ShapeError, match=r"^lengths\[0\] is -1 "):
        padding_mask(np.array([-1]), 4)
    with pytest.raises(ValueError, match=r"^side is 'top': expected 'left' or 'right'$"):
        padding_mask(np.array([1]), 4, side="top")


def test_split_leaves_no_infinity_to_add(make):
    """−inf and the dtype's lowest number become "may not"; what remains to add is finite."""
    like = make([0.0])
    lowest = float(torch.finfo(torch.as_tensor(like).dtype).min)
    allowed, bias = split_mask(make([0.0, -1.5, -np.inf, lowest]), like)
    assert np.asarray(allowed).tolist() == [True, True, False, False]
    assert np.asarray(torch.as_tensor(bias).float()).tolist() == [0.0, -1.5, 0.0, 0.0]


def test_lowest_of_either_dtype_hides():
    """The lowest float16 in a float32 mask hides keys of float16 queries, and is a number for float32 queries."""
    mask = torch.tensor([0.0, -65504.0])
    assert split_mask(mask, torch.zeros(1, dtype=torch.float16))[0].tolist() == [True, False]
    assert split_mask(mask, torch.zeros(1))[0].tolist() == [True, True]
    assert split_mask(mask.half(), torch.zeros(1))[0].tolist() == [True, False]


def test_split_of_booleans_and_of_none():
    """Booleans are taken as they are; None allows everything; neither adds anything."""
    mask = np.array([True, False])
    allowed, bias = split_mask(mask, np.zeros(1))
    assert (allowed is mask, float(bias)) == (True, 0.0)
    allowed, bias = split_mask(None, np.zeros(1))
    assert (bool(allowed), float(bias)) == (True, 0.0)


@pytest.mark.parametrize("mask", [np.array([1, 0]), torch.tensor([1, 0])])
def test_integer_masks_are_refused(mask):
    """1 and 0 could mean keep and drop or be added: the error says what to pass."""
    text = r"^mask has dtype \S*int64: expected booleans \(True = may attend\) or floats to be added$"
    with pytest.raises(DTypeError, match=text):
        split_mask(mask, torch.zeros(1) if isinstance(mask, torch.Tensor) else np.zeros(1))


@pytest.mark.parametrize(
    ("t_q", "t_kv", "window", "expected"),
    [
        (4, 4, 2, ["1...", "11..", ".11.", "..11"]),
        (4, None, 2, ["1...", "11..", ".11.", "..11"]),
        (2, 5, 2, ["..11.", "...11"]),
        (3, 3, 1, ["1..", ".1.", "..1"]),
        (3, 3, 3, ["1..", "11.", "111"]),
        (3, 3, 99, ["1..", "11.", "111"]),
        (1, 5, 4, [".1111"]),
        (4, 2, 1, ["..", "..", "1.", ".1"]),
        (2, 0, 1, ["", ""]),
        (0, 3, 1, []),
    ],
)
def test_window_masks_as_drawn(t_q, t_kv, window, expected):
    """The query's own key and window − 1 before it, aligned as the causal mask is."""
    assert rows(window_mask(t_q, t_kv, window)) == expected


def test_window_mask_is_of_the_library_and_device_asked_for():
    """NumPy by default, else like `like`."""
    assert isinstance(window_mask(3, 3, 2), np.ndarray)
    mask = window_mask(3, 5, 2, like=torch.zeros(1, device="meta"))
    assert (mask.dtype, mask.device.type, tuple(mask.shape)) == (torch.bool, "meta", (3, 5))
    assert rows(window_mask(3, 5, 2, like=torch.zeros(1))) == rows(window_mask(3, 5, 2))


@pytest.mark.parametrize("window", [0, -1, 2.0, True, None])
def test_windows_that_are_none(window):
    """A window is a whole number of keys, at least the query's own."""
    text = f"window is {window!r}: expected a whole number of keys, at least 1 (the query's own), or None"
    if window is None:
        text = "window is None: expected a whole number of keys, at least 1 (the query's own)"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        window_mask(3, 3, window)


@pytest.mark.parametrize("library", [np.zeros, torch.zeros])
def test_distances_as_drawn(library):
    """Whole numbers, 0 where query and key are the same position when both sequences end together."""
    like = library(1)
    assert distance(3, 3, like=like).tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    assert distance(2, 4, like=like).tolist() == [[2, 1, 0, 1], [3, 2, 1, 0]]
    assert distance(3, 1, like=like).tolist() == [[2], [1], [0]]
    assert type(distance(1, 1, like=like)) is type(like)
