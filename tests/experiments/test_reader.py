"""Functions of readers in the experiments of the lab: called with what they are written for, NumPy or torch."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softmax as of_torch

from attnbook.experiments import lab_root_d, lab_softmax
from attnbook.experiments._reader import called, uses_torch
from attnbook.reference import softmax


def by_module(x):
    return torch.softmax(x, -1)


def by_name(x):
    return of_torch(x, dim=-1)


def by_helper(x):
    return by_name(x)


def by_own_import(x):
    import torch as t

    return t.softmax(x, -1)


def by_numpy(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def itself(x, again=True):
    return itself(x, False) if again else by_numpy(x)


@pytest.mark.parametrize("function", [by_module, by_name, by_helper, by_own_import])
def test_torch_gets_tensors(function):
    """Whether the function names the module, a function of it, a helper, or imports it itself."""
    x = np.array([[0.0, 1.0, 3.0]], np.float32)
    out = called(function)(x)
    assert type(out) is np.ndarray
    np.testing.assert_allclose(out, by_numpy(x), rtol=1e-6)


@pytest.mark.parametrize("function", [by_numpy, itself, softmax, np.exp])
def test_numpy_stays(function):
    """Also where a function calls itself, or has no code of Python."""
    assert not uses_torch(function)
    assert called(function) is function


def by_method(x):
    return x.softmax(-1)


def test_a_function_beside_one_of_torch_gets_tensors():
    """Methods of tensors do not name torch; the package's functions take either, and stay as they are."""
    x = np.array([[0.0, 1.0, 3.0]], np.float32)
    np.testing.assert_allclose(called(by_method, by_module)(x), by_numpy(x), rtol=1e-6)
    assert called(by_method, by_numpy) is by_method
    assert called(softmax, by_module) is softmax


def test_the_experiments_take_either():
    """What is found does not depend on the library."""
    assert lab_softmax.run(by_module, farthest=89)["lab.softmax_holds"] is True

    def weight(q, k, scale):
        return torch.softmax(q @ k.T * scale, -1).amax(-1).mean()

    small = {"pairs": 31, "queries": 5, "repeats": 3}
    expected = lab_root_d.run(**small)["lab.weight_plain_64"]
    assert lab_root_d.run(largest_weight=weight, **small)["lab.weight_plain_64"] == pytest.approx(expected)
