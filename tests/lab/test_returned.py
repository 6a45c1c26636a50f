"""Numbers out of what a function returns: arrays, tensors, numbers, lists of any of them; nothing else."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from attnbook.lab.returned import NotNumbers, numbers

WANTED = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (WANTED, "float"),
        (tuple(map(tuple, WANTED)), "float"),
        (np.array(WANTED, np.float32), "float32"),
        (torch.tensor(WANTED), "float32"),
        (torch.tensor(WANTED, dtype=torch.bfloat16), "bfloat16"),
        (torch.tensor(WANTED, requires_grad=True), "float32"),
        ([torch.tensor(row) for row in WANTED], "float32"),
        ([[torch.tensor(x) for x in row] for row in WANTED], "float32"),
        ([np.array(row) for row in WANTED], "float64"),
        ([[np.float32(x) for x in row] for row in WANTED], "float32"),
        (np.array(WANTED, dtype=object), "float"),
        ([[Fraction(x) for x in row] for row in WANTED], "Fraction"),
        ([[Decimal(x) for x in row] for row in WANTED], "Decimal"),
    ],
)
def test_the_same_numbers_are_read_from_every_kind_of_container(value: object, dtype: str):
    array, name = numbers(value)
    assert (array.dtype, name) == (np.float64, dtype)
    assert array.tolist() == WANTED


@pytest.mark.parametrize(
    ("value", "kind", "dtype"),
    [
        (2, "i", "int"), (2.5, "f", "float"), (True, "b", "bool"), (1j, "c", "complex"), (np.bool_(True), "b", "bool"),
        (torch.tensor(3), "i", "int64"), ([True, False], "b", "bool"), ([], "f", "float"),
    ],
)  # fmt: skip
def test_whole_numbers_truth_values_and_complex_numbers_keep_their_kind(value: object, kind: str, dtype: str):
    array, name = numbers(value)
    assert (array.dtype.kind, name) == (kind, dtype)


@pytest.mark.parametrize(
    "value", ["1.0", {1.0: 2.0}, [[1.0], [2.0, 3.0]], np.array(["a"]), np.array([None]), object(), print, [None]]
)
def test_anything_else_is_refused(value: object):
    with pytest.raises(NotNumbers):
        numbers(value)
