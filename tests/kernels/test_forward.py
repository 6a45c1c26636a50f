"""The forward kernel: right on every pair of options, dtypes, shapes and layouts."""

import pytest

from tests.kernels.forward_product import pairs, run


@pytest.mark.parametrize("case", pairs(), ids=str)
def test_it_is_right(case):
    """Out and lse are as near to float64 as a plain calculation, whatever is asked for and however the tensors lie."""
    run(case)
