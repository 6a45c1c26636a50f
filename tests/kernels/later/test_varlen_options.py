"""The forward kernel on packed sequences: every option in every dtype, of which the default run has turns."""

import pytest

from tests.kernels.test_varlen import DTYPES, NAMES, by_itself


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_each_sequence_is_attention_by_itself(name, dtype):
    """Mixed lengths, zero among them; out and lse of each as near to float64 as a plain calculation of it alone."""
    by_itself(name, dtype)
