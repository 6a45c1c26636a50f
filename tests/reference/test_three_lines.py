"""The three lines are three, and they are attention."""

import ast
import inspect

import numpy as np
import torch

from attnbook.reference import attention, three_lines
from tests.tolerance import as_float64, assert_refuses, assert_right, garbage, plain, truth


def test_they_are_three_statements_and_a_return():
    """Between docstring and return stand exactly three assignments: score, weight, out."""
    (function,) = ast.parse(inspect.getsource(three_lines.attention)).body
    docstring, *lines, last = function.body
    assert isinstance(docstring.value, ast.Constant)
    assert [line.targets[0].id for line in lines] == ["score", "weight", "out"]
    assert all(isinstance(line, ast.Assign) for line in lines)
    assert isinstance(last, ast.Return)


def test_by_hand():
    """One query, two keys whose scores differ by ln 3: weights ¾ and ¼."""
    q = np.array([[2.0]])
    k = np.array([[np.log(3) / 2], [0.0]])
    v = np.array([[0.0, 4.0], [8.0, 0.0]])
    np.testing.assert_allclose(three_lines.attention(q, k, v), [[2.0, 3.0]], rtol=1e-15)


def test_one_sequence_is_a_batch_of_one(make, normal):
    """(t, d) gives the same numbers as the same arrays with leading axes."""
    q, k, v = (make(normal((t, d))) for t, d in ((3, 7), (5, 7), (5, 11)))
    one, batch = three_lines.attention(q, k, v), three_lines.attention(q[None, None], k[None, None], v[None, None])
    assert tuple(batch.shape) == (1, 1, 3, 11)
    eps = torch.finfo(torch.as_tensor(q).dtype).eps
    assert np.abs(as_float64(batch[0, 0]) - as_float64(one)).max() <= 4 * eps


def test_right_in_every_dtype(make, normal):
    """As near to the truth as a plain calculation in the same dtype; garbage is refused."""
    q, k, v = (make(normal((2, 3, t, d))) for t, d in ((13, 11), (17, 11), (17, 5)))
    exact, _ = truth(q, k, v)
    assert_right(three_lines.attention(q, k, v), exact, plain(q, k, v))
    assert_refuses(garbage(q, k, v), exact, plain(q, k, v))


def test_it_equals_the_full_reference(normal):
    """Without options `attention` is the three lines."""
    q, k, v = (normal((2, 3, 5, 7)) for _ in "qkv")
    np.testing.assert_allclose(three_lines.attention(q, k, v), attention(q, k, v), rtol=0, atol=1e-15)


def test_each_input_matters(normal):
    """Moving q, k or v moves the output."""
    inputs = [normal((5, 7)) for _ in "qkv"]
    out = three_lines.attention(*inputs)
    for i in range(3):
        moved = [x + (j == i) * normal(x.shape) for j, x in enumerate(inputs)]
        assert np.abs(three_lines.attention(*moved) - out).max() > 0.1
