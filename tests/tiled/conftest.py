"""Inputs for the tests of tiles: torch tensors from one seed."""

import pytest
import torch


@pytest.fixture
def normal():
    """Standard normal numbers of a shape, float64 where nothing else is asked for, the same in every run."""
    generator = torch.Generator().manual_seed(7)

    def normal(*shape, dtype=torch.float64):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return normal
