"""One pass over blocks gives what one look at everything gives."""

import re

import numpy as np
import pytest
import torch

from attnbook.errors import DTypeError, ShapeError
from attnbook.reference import logsumexp, merge, naive_softmax, online_average, online_softmax, softmax
from tests.tolerance import as_float64

BLOCKS = [1, 2, 3, 5, 11, 13, 100]


@pytest.mark.parametrize("block", BLOCKS)
def test_online_softmax_is_softmax(make, normal, block):
    """Whatever the block, along every axis, within two roundings of the dtype."""
    x = make(10 * normal((3, 11, 5)))
    eps = torch.finfo(torch.as_tensor(x).dtype).eps
    for axis in (0, 1, 2, -2):
        got, expected = online_softmax(x, axis=axis, block=block), softmax(x, axis=axis)
        assert got.dtype == x.dtype
        assert np.abs(as_float64(got) - as_float64(expected)).max() <= 4 * eps


def test_the_axis_matters(normal):
    """Along another axis the weights are others."""
    x = normal((5, 5))
    assert np.abs(online_softmax(x, axis=0) - online_softmax(x, axis=1)).max() > 0.1


def test_the_largest_score_may_come_last():
    """Sums collected under an old maximum are scaled when 1000 arrives after 0."""
    x = np.array([0.0, 999.0, 1000.0])
    np.testing.assert_allclose(online_softmax(x, block=1), softmax(x), rtol=1e-15)


@pytest.mark.parametrize("block", [1, 2, 3])
def test_first_block_wholly_masked(make, block):
    """−inf first: finite weights; −inf only: zeros."""
    x = make([[-np.inf, -np.inf, 0.0, 0.0], [-np.inf] * 4])
    assert as_float64(online_softmax(x, block=block)).tolist() == [[0.0, 0.0, 0.5, 0.5], [0.0] * 4]


@pytest.mark.parametrize("block", BLOCKS)
def test_online_average_is_the_weighted_average(make, normal, block):
    """Output and log-sum-exp of softmax(score) @ v, a block at a time."""
    score, v = make(normal((2, 3, 11))), make(normal((2, 11, 5)))
    out, lse = online_average(score, v, block=block)
    z = as_float64(score)
    weight = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    eps = torch.finfo(torch.as_tensor(score).dtype).eps
    assert out.dtype == v.dtype
    # Each merge stores the running average in v's dtype: one more rounding a block.
    assert (
        np.abs(as_float64(out) - weight @ as_float64(v)).max() <= (4 + 11 / block) * eps * np.abs(as_float64(v)).max()
    )
    assert np.abs(as_float64(lse) - np.log(np.exp(z).sum(-1))).max() <= 1e-5


@pytest.mark.parametrize("block", [1, 2, 7])
def test_online_average_with_masked_blocks_and_rows(block):
    """The first tile masked: finite. Every tile masked: (0, −inf), with gradient 0."""
    score = torch.tensor([[-torch.inf, -torch.inf, 1.0, 2.0, 3.0], [-torch.inf] * 5], dtype=torch.float64)
    score.requires_grad_()
    v = torch.arange(10.0, dtype=torch.float64).reshape(5, 2).requires_grad_()
    out, lse = online_average(score, v, block=block)
    torch.testing.assert_close(out, softmax(score) @ v, rtol=1e-14, atol=0)
    assert (out[1].tolist(), lse[1].item()) == ([0.0, 0.0], -np.inf)
    (out.sum() + lse[0]).backward()
    assert torch.isfinite(score.grad).all()
    assert torch.isfinite(v.grad).all()
    assert score.grad[1].tolist() == [0.0] * 5


def test_merge_by_hand():
    """Averages 0 and 10 with sums 1 and 3: the merged average is 7.5 and its sum 4."""
    out, lse = merge(np.array([[0.0]]), np.log([1.0]), np.array([[10.0]]), np.log([3.0]))
    assert out[0, 0] == pytest.approx(7.5, rel=1e-15)
    assert lse[0] == pytest.approx(np.log(4), rel=1e-15)


def test_merge_of_two_halves_is_the_whole(make, normal):
    """In either order, and with one side empty."""
    score, v = make(normal((3, 7))), make(normal((7, 5)))
    whole = softmax(score) @ v
    parts = [(softmax(score[:, s]) @ v[s], logsumexp(score[:, s])) for s in (slice(0, 2), slice(2, 7))]
    eps = torch.finfo(torch.as_tensor(v).dtype).eps
    for (out_a, lse_a), (out_b, lse_b) in (parts, parts[::-1]):
        out, lse = merge(out_a, lse_a, out_b, lse_b)
        assert np.abs(as_float64(out) - as_float64(whole)).max() <= 8 * eps
        np.testing.assert_allclose(as_float64(lse), as_float64(logsumexp(score)), rtol=1e-5)
        out, lse = merge(out_a, lse_a, out_a * 0, lse_a * 0 - np.inf)
        assert (out == out_a).all()
        assert (lse == lse_a).all()


def test_merge_of_two_nothings_is_nothing(make):
    """(0, −inf) and (0, −inf) give (0, −inf), not NaN."""
    zero, none = make(np.zeros((3, 5))), logsumexp(make(np.full((3, 1), -np.inf)))
    out, lse = merge(zero, none, zero, none)
    assert (as_float64(out) == 0).all()
    assert (as_float64(lse) == -np.inf).all()
    assert out.dtype == zero.dtype
    assert lse.dtype == none.dtype


def test_each_side_of_merge_matters(normal):
    """Moving any of the four inputs moves the result."""
    inputs = [normal((3, 5)), normal(3), normal((3, 5)), normal(3)]
    out, _ = merge(*inputs)
    for i in range(4):
        moved = [x + (i == j) for j, x in enumerate(inputs)]
        assert np.abs(merge(*moved)[0] - out).max() > 0.01


def test_gradients():
    """Online softmax, average and merge differentiate as what they equal."""
    g = torch.Generator().manual_seed(2)
    score, v = (torch.randn(*s, dtype=torch.float64, generator=g, requires_grad=True) for s in ((2, 5), (5, 3)))
    assert torch.autograd.gradcheck(lambda x: online_softmax(x, block=2), score)
    assert torch.autograd.gradcheck(lambda s, v: online_average(s, v, block=2), (score, v))


@pytest.mark.parametrize("block", [1, 2, 3])
def test_gradients_of_rows_and_halves_that_hold_nothing(block):
    """A row of −inf in any number of blocks, and two results with lse −inf merged: finite, and 0 from the nothing."""
    score = torch.tensor([[0.0, 1.0, 2.0], [-torch.inf] * 3], requires_grad=True)
    v = torch.tensor([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]], requires_grad=True)
    out, lse = online_average(score, v, block=block)
    (out.sum() + lse[0] + online_softmax(score, block=block)[:, 0].sum()).backward()
    assert torch.isfinite(score.grad).all()
    assert torch.isfinite(v.grad).all()
    assert (score.grad[1] == 0).all()
    assert (score.grad[0] != 0).any()

    halves = [torch.tensor(x, requires_grad=True) for x in ([[1.0], [2.0]], [0.0, -torch.inf])]
    halves += [torch.tensor(x, requires_grad=True) for x in ([[3.0], [4.0]], [1.0, -torch.inf])]
    out, lse = merge(*halves)
    (out.sum() + lse.sum()).backward()
    for x in halves:
        assert torch.isfinite(x.grad).all()
        assert (x.grad[1] == 0).all()
        assert (x.grad[0] != 0).all()


@pytest.mark.parametrize("block", [0, -1])
def test_a_block_holds_at_least_one_score(block):
    """The error says which block came."""
    for call in (
        lambda: online_softmax(np.zeros(3), block=block),
        lambda: online_average(np.zeros((2, 3)), np.zeros((3, 2)), block=block),
    ):
        with pytest.raises(ValueError, match=f"^block is {block}: expected at least 1$"):
            call()


def test_errors_name_what_came():
    """Other keys than scores, and integers."""
    with pytest.raises(ShapeError, match=r"^v has length 4 \(axis t\) but score has 3 keys: they must be equal$"):
        online_average(np.zeros((2, 3)), np.zeros((4, 2)))
    for call in (online_softmax, logsumexp, naive_softmax):
        with pytest.raises(DTypeError, match=r"^x has dtype int64: expected a floating-point dtype$"):
            call(np.array([1, 2]))
    for name, inputs in (("score", ([[1, 2]], [[0.5], [0.5]])), ("v", ([[0.5, 0.5]], [[1], [2]]))):
        with pytest.raises(DTypeError, match=f"^{name} has dtype int64: expected a floating-point dtype$"):
            online_average(*map(np.array, inputs))


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((2, 3, 5), (2, 3), (2, 3, 7), (2, 3)), "out_b has length 7 (axis 2) but out_a has 5: they must be equal"),
        (((2, 3, 5), (2, 3), (3, 5), (3,)), "out_b has 2 axes (3, 5): expected 3, as out_a has"),
        (((2, 3, 5), (3, 2), (2, 3, 5), (2, 3)), "lse_a has length 3 (axis 0) but out_a without axis d has 2: they "),
        (((2, 3, 5), (2, 3), (2, 3, 5), (2, 1)), "lse_b has length 1 (axis 1) but out_b without axis d has 3: they "),
        (((5, 5), (5, 5), (5, 5), (5,)), "lse_a has 2 axes (5, 5): expected 1, as out_a without axis d has"),
    ],
)
def test_merge_refuses_what_does_not_belong_together(make, shapes, text):
    """Also where the arithmetic would find a shape to go on with."""
    with pytest.raises(ShapeError, match="^" + re.escape(text)):
        merge(*(make(np.zeros(shape)) for shape in shapes))


@pytest.mark.parametrize("place", range(4))
def test_merge_refuses_integers(place):
    """An average of whole numbers is none."""
    inputs = [np.zeros((2, 3)), np.zeros(2), np.zeros((2, 3)), np.zeros(2)]
    inputs[place] = inputs[place].astype(int)
    name = ("out_a", "lse_a", "out_b", "lse_b")[place]
    with pytest.raises(DTypeError, match=f"^{name} has dtype int64: expected a floating-point dtype$"):
        merge(*inputs)


@pytest.mark.parametrize("shape", [(3, 11, 5), (1, 11, 5), (11, 5)])
def test_heads_may_share_what_is_averaged(make, normal, shape):
    """v without the axis of heads, or with one for all, is each head's."""
    score, v = make(normal((3, 7, 11))), make(normal(shape))
    out, lse = online_average(score, v, block=5)
    for head in range(3):
        own = v if len(shape) == 2 else v[head % shape[0]]
        alone, alone_lse = online_average(score[head], own, block=5)
        eps = torch.finfo(torch.as_tensor(v).dtype).eps
        assert np.abs(as_float64(out[head]) - as_float64(alone)).max() <= 8 * eps
        assert np.abs(as_float64(lse[head]) - as_float64(alone_lse)).max() <= 1e-5


@pytest.mark.parametrize(("score", "v"), [((7, 11), (3, 11, 5)), ((1, 7, 11), (3, 11, 5)), ((3, 7, 11), (2, 11, 5))])
def test_scores_of_fewer_heads_than_values_are_refused(score, v):
    """Every head of v needs its scores."""
    text = f"v has leading axes {v[:-2]} but score has {score[:-2]}: v's must be score's, 1, or left out"
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        online_average(np.zeros(score), np.zeros(v))
