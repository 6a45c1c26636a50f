"""Where a NaN or an infinity in one entry comes to, forward and backward: the whole product."""

import pytest
import torch

from tests.kernels.not_finite import INF, NAN, OPTIONS, PLACES, check

# NumPy's, in the interpreter: the largest of a row of NaN, inf · 0, and products that are meant to overflow.
pytestmark = pytest.mark.filterwarnings("ignore:(All-NaN slice|invalid value|overflow):RuntimeWarning")


@pytest.mark.parametrize("at", ["amid", "last"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", OPTIONS)
def test_it_reaches_what_the_formula_takes_it_to(name, place, bad, at):
    """As in the reference, asked about one query and the keys that it sees: no more, no less, no other number."""
    check(name, place, bad, at)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["softcap", "causal", "everything"])
def test_in_half_precision(name, place, dtype):
    """The same."""
    for bad in (NAN, INF):
        check(name, place, bad, "last", dtype)
