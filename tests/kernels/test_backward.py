"""The backward kernels: right on every pair of options, dtypes, shapes and layouts; memory is poisoned first."""

import pytest

from tests.kernels.backward_product import OPTIONS, Case, pairs, run


@pytest.mark.parametrize("case", pairs(), ids=str)
def test_it_is_right(case):
    """Every gradient, of out and lse together, is as near to float64 as a plain one, whatever is asked for."""
    run(case)


@pytest.mark.parametrize("options", OPTIONS)
def test_garbage_would_be_refused(options):
    """The check above has teeth: the gradient of another mask, scale, cap or head, or none of the lse, do not pass."""
    run(Case(options, "float32", "small", "contiguous"), controls=True)
