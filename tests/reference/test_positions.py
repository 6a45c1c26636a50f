"""Sinusoidal and learned positions, ALiBi, and positions of padded rows."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference.attention import attention
from attnbook.reference.masks import causal_mask, padding_mask
from attnbook.reference.positions import (
    LearnedPositions,
    alibi_bias,
    alibi_slopes,
    positions_from_mask,
    sinusoidal_positions,
)
from tests.tolerance import as_float64

# Sinusoidal


def test_sinusoidal_is_the_papers_formula():
    """PE[pos, 2i] = sin(pos / 10000^(2i / d)), PE[pos, 2i + 1] the cosine; number by number."""
    table = sinusoidal_positions(7, 10)
    assert table.shape == (7, 10)
    for position, i in np.ndindex(7, 5):
        angle = position / 10000 ** (2 * i / 10)
        assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-14)
        assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-14)


def test_sinusoidal_is_rounded_once_from_float64(make):
    """In the library and dtype of `like`; half a rounding off, also at position 2²⁴ + 1, which is no float32."""
    like = make(np.zeros(1))
    positions = np.array([0, 2049, 131_071, 2**20, 2**24 + 1])
    table = sinusoidal_positions(positions.tolist(), 6, like=like)
    assert type(table) is type(like)
    assert table.dtype == like.dtype
    exact = np.array([[f(p / 10000 ** (2 * i / 6)) for i in range(3) for f in (np.sin, np.cos)] for p in positions])
    half_a_step = np.maximum(torch.finfo(torch.as_tensor(like).dtype).eps / 2, 1e-9)
    assert np.abs(as_float64(table) - exact).max() <= half_a_step


def test_sinusoidal_parameters(normal):
    """theta and layout change it; "half" is the same numbers in another order; an array of positions picks rows."""
    plain = sinusoidal_positions(5, 8)
    assert np.abs(sinusoidal_positions(5, 8, theta=100.0) - plain).max() > 0.1
    half = sinusoidal_positions(5, 8, layout="half")
    np.testing.assert_array_equal(half, np.concatenate([plain[:, 0::2], plain[:, 1::2]], axis=1))
    rows = np.array([[4, 0], [2, 2]])
    np.testing.assert_array_equal(sinusoidal_positions(rows, 8), plain[rows])
    assert isinstance(sinusoidal_positions(torch.tensor([1, 2]), 8, like=torch.zeros(1)), torch.Tensor)
    assert sinusoidal_positions(torch.tensor([1, 2]), 8).dtype == torch.float64
    assert sinusoidal_positions(0, 8).shape == (0, 8)
    np.testing.assert_array_equal(sinusoidal_positions(np.int64(5), 8), plain)  # any whole number is a length
    np.testing.assert_array_equal(sinusoidal_positions([4, 0], 8), plain[[4, 0]])


@settings(max_examples=25, deadline=None)
@given(st.integers(-10_000, 10_000), st.integers(-10_000, 10_000), st.integers(-500, 500))
def test_sinusoidal_products_depend_on_the_difference_alone(i, j, shift):
    """What makes them positions of a line: PE(i) · PE(j) is a function of i − j, for negative positions too."""
    one, two, three, four = sinusoidal_positions(np.array([i, j, i + shift, j + shift]), 14)
    assert one @ two == pytest.approx(three @ four, abs=1e-8)
    assert one @ one == pytest.approx(7)


# Learned


def test_learned_positions_are_rows_of_a_trained_table():
    """A number gives the first rows, an array those rows, and only they get a gradient."""
    table = LearnedPositions(11, 5)
    for three in (3, np.int64(3)):
        assert torch.equal(table(three), table.weight[:3])
    assert torch.equal(table(11), table.weight)
    positions = torch.tensor([[2, 2, 7], [0, 10, 2]], dtype=torch.int32)
    out = table(positions)
    assert out.shape == (2, 3, 5)
    out.sum().backward()
    assert table.weight.grad[:, 0].tolist() == [1, 0, 3, 0, 0, 0, 0, 1, 0, 0, 1]
    assert table(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 5)
    assert 0 < float(table.weight.detach().std()) < 0.1
    assert list(table.state_dict()) == ["weight"]  # as torch.nn.Embedding has it
    assert repr(table) == "LearnedPositions(11, 5)"
    assert LearnedPositions(3, 2, dtype=torch.bfloat16)(2).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("positions", "error", "text"),
    [
        (torch.tensor([0, 11]), ShapeError, "position 11 is outside the learned table of 11 positions (0 to 10)"),
        (torch.tensor([-1, 3]), ShapeError, "position -1 is outside the learned table of 11 positions (0 to 10)"),
        (12, ShapeError, "12 positions (axis t) are more than the learned table has: 11 (0 to 10)"),
        (-1, ShapeError, "-1 positions (axis t): expected 0 to 11, the length of the learned table"),
        (torch.tensor([0.5]), DTypeError, "positions has dtype torch.float32: expected whole numbers"),
        (torch.tensor([True]), DTypeError, "positions has dtype torch.bool: expected whole numbers"),
    ],
)
def test_a_learned_table_ends(positions, error, text):
    """Beyond the trained length there is no row: a clear error, also where indexing would count from the end."""
    with pytest.raises(error, match=re.escape(text)):
        LearnedPositions(11, 5)(positions)


# ALiBi


def test_slopes_of_eight_heads():
    """½, ¼ … 1/256, as the paper prints them."""
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(1).tolist() == [1 / 256]
    assert alibi_slopes(3).tolist() == [1 / 16, 1 / 256, 1 / 4]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 12, 16, 17, 31, 32, 71, 112])
def test_slopes_of_any_number_of_heads(n):
    """The paper's recursion: the power of two below, then every other one of the power of two above."""

    def recursion(n):
        if math.log2(n).is_integer():
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]
        below = 2 ** math.floor(math.log2(n))
        return recursion(below) + recursion(2 * below)[0::2][: n - below]

    slopes = alibi_slopes(n)
    np.testing.assert_allclose(slopes, recursion(n), rtol=1e-12)
    assert len(set(slopes)) == n  # no two heads alike
    assert (slopes > 0).all()
    assert (slopes < 1).all()


def test_slopes_in_the_library_of_like(make):
    """Half precision gets float32 slopes: a slope times a distance is added to float32 scores."""
    like = make(np.zeros(1))
    slopes = alibi_slopes(6, like=like)
    assert type(slopes) is type(like)
    assert str(slopes.dtype).endswith("float64" if str(like.dtype).endswith("float64") else "float32")
    np.testing.assert_allclose(as_float64(slopes), alibi_slopes(6), rtol=1e-7)


@pytest.mark.parametrize(("t_q", "t_kv"), [(5, 5), (3, 7), (1, 6)])
def test_bias_by_distance_is_what_attention_adds(normal, t_q, t_kv):
    """−m · |i + t_kv − t_q − j|, distant keys penalised; with and without a causal mask."""
    slopes = alibi_slopes(3)
    bias = alibi_bias(slopes, t_q, t_kv)
    for h, i, j in np.ndindex(3, t_q, t_kv):
        assert bias[h, i, j] == -slopes[h] * abs(i + t_kv - t_q - j)
    assert (np.diff(bias[:, -1]) > 0).all()  # the last query: the nearer, the higher
    q, k, v = normal((2, 3, t_q, 4)), normal((2, 3, t_kv, 4)), normal((2, 3, t_kv, 4))
    for is_causal in (False, True):
        added = attention(q, k, v, mask=bias, is_causal=is_causal)
        np.testing.assert_allclose(attention(q, k, v, alibi_slopes=slopes, is_causal=is_causal), added, atol=1e-12)
        assert np.abs(attention(q, k, v, is_causal=is_causal) - added).max() > 1e-3


@pytest.mark.parametrize(("t_q", "t_kv"), [(5, 5), (3, 7), (1, 6)])
def test_both_conventions_are_one_softmax_under_a_causal_mask(make, normal, t_q, t_kv):
    """Each row differs by a constant; without the mask they are two different things."""
    slopes = alibi_slopes(3, like=make(np.zeros(1)))
    distance, position = (alibi_bias(slopes, t_q, t_kv, convention=c) for c in ("distance", "position"))
    assert tuple(position.shape) == (3, 1, t_kv)
    q, k, v = normal((1, 3, t_q, 4)), normal((1, 3, t_kv, 4)), normal((1, 3, t_kv, 4))
    distance, position = as_float64(distance), as_float64(position)
    one, two = (attention(q, k, v, mask=bias, is_causal=True) for bias in (distance, position))
    np.testing.assert_allclose(one, two, atol=1e-6)  # the slopes may be float32
    hidden = ~np.broadcast_to(causal_mask(t_q, t_kv), distance.shape)
    gap = np.where(hidden, np.nan, position - distance)
    assert np.nanmax(np.nanmax(gap, -1) - np.nanmin(gap, -1)) < 1e-6
    if t_q > 1:
        one, two = (attention(q, k, v, mask=bias) for bias in (distance, position))
        assert np.abs(one - two).max() > 1e-3


def test_bias_of_each_sequence_and_its_gradient():
    """(b, h) slopes give a bias for each sequence, and slopes may be trained."""
    slopes = torch.tensor([[0.5, 0.25, 0.1], [1.0, 2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    assert alibi_bias(slopes, 2, 5).shape == (2, 3, 2, 5)
    assert torch.equal(alibi_bias(slopes, 4)[1], alibi_bias(slopes[1], 4))
    for convention in ("distance", "position"):
        assert torch.autograd.gradcheck(lambda s, c=convention: alibi_bias(s, 2, 3, convention=c), slopes)


# Positions from a mask


def test_positions_count_tokens(make):
    """Filling at either side, or in the middle, is not counted."""
    mask = [[0, 0, 1, 1, 1], [1, 1, 1, 1, 0], [1, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    expected = [[0, 0, 0, 1, 2], [0, 1, 2, 3, 3], [0, 0, 0, 1, 2], [0, 0, 0, 0, 0]]
    for tokens in (make(mask), make(np.array(mask, dtype=bool)), make(np.array(mask, np.uint8) * 255)):
        out = positions_from_mask(tokens)
        assert type(out) is type(tokens)
        assert out.tolist() == expected
    lengths = make([3, 0, 5])
    assert positions_from_mask(padding_mask(lengths, 5, side="left"))[0].tolist() == [0, 0, 0, 1, 2]
    assert tuple(positions_from_mask(make(np.zeros((2, 0), bool))).shape) == (2, 0)


# Bad input


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: sinusoidal_positions(5, 7),
            ShapeError,
            "d_model is 7 (axis d): expected an even number, a sine and a",
        ),
        (lambda: sinusoidal_positions(-1, 8), ShapeError, "t is -1: expected at least 0 positions"),
        (
            lambda: sinusoidal_positions(torch.ones(3).half(), 8),
            DTypeError,
            "positions has dtype torch.float16: expected whole numbers, or float32 or float64",
        ),
        (lambda: sinusoidal_positions(5, 8, layout="gptj"), ValueError, "layout is 'gptj': expected 'interleaved' or"),
        (lambda: sinusoidal_positions(5, 8, theta=-1.0), ValueError, "theta is -1.0: expected a finite number above 0"),
        (
            lambda: LearnedPositions(0, 8),
            ShapeError,
            "the table is 0 × 8: expected at least 1 position and 1 component",
        ),
        (lambda: alibi_slopes(0), ValueError, "n_heads is 0: expected at least 1"),
        (lambda: alibi_bias(np.ones((1, 1, 1)), 3), ShapeError, "slopes has 3 axes (1, 1, 1): expected (h,) or (b, h)"),
        (lambda: alibi_bias(np.ones(2, int), 3), DTypeError, "slopes has dtype int64: expected a floating-point dtype"),
        (
            lambda: alibi_bias(np.ones(2), 3, convention="bloom"),
            ValueError,
            "convention is 'bloom': expected 'distance' or 'position'",
        ),
        (
            lambda: positions_from_mask(np.ones((2, 3))),
            DTypeError,
            "mask has dtype float64: expected booleans (True = a",
        ),
        (
            lambda: positions_from_mask(np.ones(3, bool)),
            ShapeError,
            "mask has 1 axes (3,): expected (b, t) or (b, 1, 1",
        ),
    ],
)
def test_bad_input_is_named(call, error, text):
    """One error, with the axis, what was expected and what came."""
    with pytest.raises(error, match=re.escape(text)):
        call()


def test_every_pair_of_encodings_differs():
    """Sinusoidal tables of two widths, bases and layouts are all different: no argument is passed over."""
    tables = [sinusoidal_positions(5, 8, theta=t, layout=o) for t in (1e4, 1e3) for o in ("interleaved", "half")]
    for one, two in itertools.combinations(tables, 2):
        assert np.abs(one - two).max() > 1e-2
