"""Inputs for the reference's tests: NumPy arrays and torch tensors of every dtype, from one seed."""

import numpy as np
import pytest
import torch

KINDS = {
    "numpy-float16": np.float16,
    "numpy-float32": np.float32,
    "numpy-float64": np.float64,
    "torch-float16": torch.float16,
    "torch-bfloat16": torch.bfloat16,
    "torch-float32": torch.float32,
    "torch-float64": torch.float64,
}


@pytest.fixture(params=KINDS, ids=str)
def make(request):
    """A function from nested lists or NumPy arrays to an array of one library and one floating dtype."""
    dtype = KINDS[request.param]

    def make(values):
        values = np.asarray(values)
        if isinstance(dtype, torch.dtype):
            return torch.from_numpy(values.copy()).to(dtype if values.dtype.kind == "f" else None)
        return values.astype(dtype) if values.dtype.kind == "f" else values

    return make


@pytest.fixture
def normal():
    """Standard normal numbers of a shape, float64, the same in every run."""
    return np.random.default_rng(7).standard_normal
